"""Metrics of outputs against references; a value always comes with the signature of its settings.

``output_metrics`` has every metric of outputs, ``output_statistics`` what each output adds to one (significance,
selections of candidates), ``breakdown`` groups of a test set and wrong tokens, ``gold_links`` word alignments of
annotators and their metrics, ``delay`` the metrics of streams.
"""
