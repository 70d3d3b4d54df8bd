"""The names of all files that a run may hold."""

MANIFEST = "manifest.json"
CHECKPOINT = "last.ckpt"
"""Read only when training is resumed."""
MEMBERS = tuple(f"member-{index}" for index in range(1, 17))
"""Folders of the runs that an ensemble is made of."""
PARTS = ("direct", "channel", "lm", *MEMBERS)
"""Folders of the runs that a noisy channel or an ensemble is made of; its direct model may be an ensemble."""
FOLDERS = ("corpus", "tensorboard")
"""Folders without digests in the manifest: no prediction reads them, and encoded corpora are checked by themselves."""

PREDICTION_FILES = (
    "recipe.toml",
    "source.vocab",
    "target.vocab",
    "features.vocab",
    "source.spm",
    "target.spm",
    "model.safetensors",
    "rules.tsv",
    "words.vocab",
    "vectors.safetensors",
    "encoder/config.json",
    "encoder/tokenizer.json",
    "encoder/pooling.json",
    "overlap.tsv",
    "logistic.json",
    "metrics.json",
)
"""Files that prediction needs."""
REPORTS = ("log.csv", "training.png", "online.png", "alignment.png")
"""Logs and pictures, which no command reads; they may be deleted."""
RUN_FILES = frozenset(
    [
        *PREDICTION_FILES,
        *REPORTS,
        CHECKPOINT,
        *(
            f"{part}/{name}"
            for part in (*PARTS, *(f"direct/{member}" for member in MEMBERS))
            for name in (*PREDICTION_FILES, *REPORTS, MANIFEST)
        ),
    ]
)
"""Every file that a manifest can list."""
