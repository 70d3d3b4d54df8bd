"""N-best weight search for a noisy channel (``antiphon tune``): its lists of candidates, and the search."""
