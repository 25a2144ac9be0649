"""Starting, ending and accounting for processes: the zygote, its launcher, limits."""
