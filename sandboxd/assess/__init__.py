"""Between the doors and the rules: a proposed call put into the rules' words, and their eyes."""
