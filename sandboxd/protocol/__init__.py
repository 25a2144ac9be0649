"""The wire: typed messages, the one table of methods, and JSON-RPC 2.0 lines."""
