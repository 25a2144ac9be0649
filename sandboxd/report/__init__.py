"""A session as one page that a person would rather look at than a log."""
