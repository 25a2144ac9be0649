"""Configuration files with their secrets taken out.

Registries, mirrors, identities and settings must keep working inside a run, and the tokens that stand
beside them in the same files must not get there. What is shown is always written anew from what was
understood of a file, never copied: what a format's reader does not understand is not shown at all.

    secrets  which names and values are secret
    formats  one reader and writer for each format
    copies   the copies of one run's files, remembered while the files stay the same
"""
