"""The guardian: protected names in time. A mount protects a file, a person means a name.

While a run lives it watches the folders of protected and denied names (never the workspace as a
whole), covers again what the host replaced, sets aside what a run plants under a name that runs
later, outside, and at the end compares what is there with what was there.

    guardian   one per engine: the watch that runs share, the sweep after a crash
    guard      one run: what its names were, what became of them, what is done about it
    names      which names of a policy are looked at, and how they were found
    covering   the covers of a living run, asked for again when a covered name changed
    planted    a name that was not there before: set aside, or kept because it is no plant
    restore    what tiers without mounts could not protect: kept before, put back after
    gitconfig  the keys of git's configuration that make it run a program
    repository what git would make of a folder, read without running git
    aside      moving things out of the way, safely and without losing them
    journal    what the next start needs to finish the work after a crash
    watch      one inotify for all folders of all runs
    approved   which names an approval opens for one run
    findings   what is said of it in the result
    failures   a tool's failure that a protected name explains
"""
