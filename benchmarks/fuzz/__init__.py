"""Everything that reads a server's bytes, under a fuzzer that follows the code's branches (atheris, libFuzzer).

    pip install atheris                                       # CPython on Linux; not among the dev dependencies
    python -m benchmarks.fuzz.corpus build/corpus             # good and hostile answers to start from
    python -m benchmarks.fuzz.decoder build/corpus -max_total_time=60 -max_len=65536 -dict=build/corpus.dict

What has to hold stands in `tests/property/oracles.py`, which the tests check with hypothesis.
"""
