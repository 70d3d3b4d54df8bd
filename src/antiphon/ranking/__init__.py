"""Answer selection: ranks given answers to questions, and brings the task that trains such rankers.

* data: ``question_files`` (formats), ``question_sets`` (which questions are used, and their metrics),
  ``question_batches`` (encoded pairs), ``listwise`` (batches and loss of whole questions)
* networks: ``matchers`` over ``sentence_models`` with ``word_vectors``, or a ``pretrained_encoder``
* rankers: ``rankers`` with ``overlap`` (words in common), ``saved_rankers`` in run folders, ``ensemble_rankers``
* training: ``matching_task``
"""
