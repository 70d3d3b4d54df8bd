"""Answer selection: ranks given answers to questions, and brings the task that trains such rankers.

* data: ``questions`` (formats, and which of them are used), ``question_batches`` (encoded pairs, or whole
  questions)
* networks: ``matchers``: sentence models over ``word_vectors``, their match and its losses
* rankers: ``rankers``, alone and in run folders, with ``overlap`` (words in common)
* training: ``matching_task``
"""
