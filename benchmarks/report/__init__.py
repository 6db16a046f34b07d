"""What the measurements gave, in figures, words and drawings.

results       the figures, to and from results.json
comparison    the figures of two runs side by side: what became worse?
page          the figures in words, with their targets
drawings      the figures as SVG
"""
