"""Mutation testing of the core's decisions: does a test fail where one of them is changed?

    pip install mutmut                                             # 3.8 or later; not among the dev dependencies
    python -m benchmarks.mutation /tmp/mutation [credentials tokens retry outcome]
    cd /tmp/mutation/retry && mutmut results && mutmut show NAME

Works on copies of the repository, never in it. `benchmarks/results/mutation.md` says what became of each survivor.
"""
