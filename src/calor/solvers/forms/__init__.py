"""How solutions of the log heat equation are written, and the rows of their equations."""
