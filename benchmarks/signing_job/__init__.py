"""The signing job measured: `python -m benchmarks signing-job [rate] [killed]`, all without a name.

rate      documents a second, with journal and verified output, beside bare aiohttp that does the same three calls
killed    2,000 documents, and kill -9 every few seconds

command   runs them, and writes results/signing-job.md from what results/signing-job.json keeps of each
works     what each process does
"""
