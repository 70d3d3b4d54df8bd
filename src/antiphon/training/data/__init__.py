"""What training reads: files to encoded corpora, the cache of these, and question sets."""
