"""`directsuite sign`: PDFs and folders of them in, signed PDFs out, each signed once whatever happens meanwhile.

    sources ──► admitted ──► directsuite.jobs.signing ──► --output
                 │  no PDF, signed before, or the output is taken: told, and passed over
    journal ─────┴─ beside the output, so that the same command goes on where it was broken off

What is signed keeps its name: that of a file, or its path below the folder that was given.
"""
