"""Whether a person is asked: approval modes, the caller's word, what was approved before."""
