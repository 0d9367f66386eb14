"""Files: one safetensors file with a JSON header, written whole or not at all, no code inside.

Open `stored` first: how values become a file and come back.  `tables` reads and writes rows of
numbers and words, whatever they mean.
"""

SEES = ()
