"""Run folders on disk: written atomically, by one writer at a time, and verified when read.

A change of a run, under the lock of its folder, is made in three steps:

1. New files are written into a scratch folder inside the run, which other processes ignore (``files``).
2. Replacing ``manifest.json``, which then lists them, commits the change: before it the run is the old one, after it
   the new one (``manifest``).
3. The files are moved into place. If that is interrupted, readers find them in the scratch folder, and
   the next writer that may change the run moves them (``manifest.recover``). No symbolic link is followed.

``tensors`` has weights, checked by their header before memory is allocated.
"""
