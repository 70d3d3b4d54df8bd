"""Training: prepare the data, fit, and save what matters in the run folder.

``fit`` trains a recipe from its data to a finished run. It asks ``checks`` what is refused or suspicious, lets a
``Task`` (``task``) read its data and build its model, and runs the ``loop``; ``resume`` says what a resumed run may
change, ``dry_run`` what training will take.

* settings: ``resolution`` decides what a recipe leaves unset, with reasons
* data: ``prepare`` encodes files to corpora, ``encoded_cache`` says when they can be reused
* tasks: ``generation_task`` with ``generation_validation``; ``suffix_rules``, alone or beside a network. Answer
  selection brings its own task (``antiphon.ranking``)
* an update: ``step``, wrapped by ``out_of_memory`` and on a GPU by ``cuda_graph_step``; ``optimisation`` has the
  optimiser, the learning-rate schedule and the EMA
* over epochs: ``state`` with its checkpoints, ``history``, ``callback``; ``distributed`` for several processes
"""
