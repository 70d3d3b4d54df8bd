"""What works without PyTorch, for the Python API and ``antiphon.lite``: text, ids, hypotheses, results, streams.

Text: ``readers`` (files to lines and pairs), ``vocab``, ``codec`` (text to tokens, ids and back), ``batch`` (padded
pairs, and which of them form a batch). Predictions: ``inputs`` (checks of arguments), ``prediction`` (predictions and
streams of any model), ``hypothesis`` (settings and hypotheses of a search), ``results`` (what comes back; lists of
candidates; lexicons), ``frames`` (columns of pandas, polars, Arrow), ``suffix_rule`` (alone or beside a network).
Streams: ``streams`` (text in and out), ``stream_policies`` (what is written, and when), ``stream_beam`` (what a beam
keeps).
"""
