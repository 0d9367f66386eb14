"""Python, and the command line, in processes of their own."""

import os
import subprocess
import sys


def python(*arguments, **options):
    """What a process says: its output and errors as text, and its exit code."""
    kept = {"capture_output": True, "text": True, "timeout": 300, "check": False}
    return subprocess.run([sys.executable, *arguments], **kept, **options)


def seeing(folder):
    """The environment of a process that looks for modules in a folder first."""
    path = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def command(*arguments, **options):
    """The same of `calor ARGUMENTS`."""
    return python("-m", "calor.cli", *arguments, **options)
