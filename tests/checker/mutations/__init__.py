"""Mutate a correct history like a defective log, one defect at a time. Each mutation names the violated invariant."""

from __future__ import annotations

from tests.checker.mutations import availability, brokers, compaction, groups, readers, records, replicas
from tests.checker.mutations.mutation import Mutation

MUTATIONS = [
    each
    for kind in (records, readers, brokers, replicas, groups, availability, compaction)
    for each in vars(kind).values()
    if isinstance(each, Mutation)
]
