"""The long-lived side of the protocol: connections, handlers, socket, life and death."""
