"""Small languages inside arguments, one module each: graded word by word, never guessed."""
