"""Rules: what a proposed tool call may do, judged before it runs."""
