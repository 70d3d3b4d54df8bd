"""Training: prepare the data, fit, and save what matters in the run folder.

``fit`` trains a recipe from its data to a finished run, ``seeds`` with several seeds to an ensemble. ``fit`` asks
``checks`` what is refused or suspicious, lets a ``Task`` (``task``) read its data and build its model, and runs the
``loop``.

* settings: ``resolution`` decides what a recipe leaves unset, with reasons
* data: ``prepare`` encodes files to corpora; ``augmentation`` hides tokens and makes up pairs
* tasks: that of models which write is in ``task``; ``suffix_rules``, alone or beside a network. Answer selection brings
  its own (``antiphon.ranking``)
* an update: ``step``; ``optimisation`` has the optimiser, the learning-rate schedule and the EMA
* over epochs: ``state`` with its checkpoints, ``callback``; ``distributed`` for several processes
"""
