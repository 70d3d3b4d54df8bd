"""The Python API; ``antiphon`` has its public names, each imported when it is first used.

``model`` (what trained models do, and how they are loaded), ``ranking_model`` (models that rank), ``evaluation``
(metrics of outputs, mistakes, improbable pairs), ``word_links`` (links between words, of one or two models, and their
scores), ``train_recipe`` (training from Python). What needs no PyTorch,
such as results, is in ``torch_free``.
"""
