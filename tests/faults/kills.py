"""Kill points of the store, at which ``DKFEAT_KILL_AT="point:k"`` kills a process that passes one for the k-th time."""

POINTS = (
    "after_plan",
    "before_tmp",
    "mid_write",
    "after_tmp",
    "after_publish",
    "before_manifest",
    "after_manifest",
    "after_success",
    "before_unlock",
)
"""Kill points in the order in which a run that publishes one shard passes them."""
ABORT_POINTS = ("abort_before_shard", "abort_before_plan", "abort_after_plan", "abort_after_success")
"""Kill points in the order in which an abort of a batch with one shard passes them."""
