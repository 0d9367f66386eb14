"""`calor completion`: words for the shell to complete, taken from the parser itself."""

import argparse

from . import COMMANDS, parsers
from ._shared import DONE

_SHELLS = ("bash", "zsh", "fish")


def describe(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.description = (
        "Print a script that lets the shell complete commands, options and files. bash and zsh "
        "evaluate it, fish reads it from a file."
    )
    parser.epilog = (
        'Example: eval "$(calor completion bash)", in ~/.bashrc; for fish: calor completion fish '
        "> ~/.config/fish/completions/calor.fish"
    )
    parser.add_argument("shell", choices=_SHELLS)
    parser.set_defaults(run=_print_script)


def _print_script(options) -> int:
    found = {name: _options(parser) for name, parser in parsers(COMMANDS)[1].items()}
    print(_fish(found) if options.shell == "fish" else _bash(found, options.shell))
    return DONE


def _options(parser) -> dict[str, list[str]]:
    """Options of a command and the values that each may have; "" stands for the positional."""
    found: dict[str, list[str]] = {"": []}
    for action in parser._actions:
        choices = [str(choice) for choice in action.choices or _suggested(action)]
        if not action.option_strings:
            found[""] += choices
        elif action.help != argparse.SUPPRESS:
            found |= {name: choices for name in action.option_strings}
    return found


def _suggested(action):
    """The words of a metavar such as auto|exact|...: values that come to mind, among others."""
    words = str(action.metavar or "").split("|")
    return words[:-1] if words[-1] == "..." else []


def _bash(commands, shell):
    """A function for bash, which zsh understands too."""
    cases = []
    for name, options in commands.items():
        words = " ".join([*(option for option in options if option), *options[""]])
        values = [
            f'            {option}) words="{" ".join(choices)}" ;;'
            for option, choices in options.items()
            if option and choices
        ]
        inner = "\n".join(
            [f'        words="{words}"', '        case "$before" in', *values, "        esac"]
        )
        cases.append(f"    {name})\n{inner}\n        ;;")
    start = ["autoload -U +X bashcompinit && bashcompinit"] if shell == "zsh" else []
    return "\n".join(
        [
            *start,
            "_calor() {",
            '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words',
            '    if [ "$COMP_CWORD" -eq 1 ]; then',
            f'        words="{" ".join(commands)} --help --version --debug"',
            "    else",
            '    case "${COMP_WORDS[1]}" in',
            *cases,
            "    esac",
            "    fi",
            '    COMPREPLY=($(compgen -W "$words" -- "$word"))',
            "}",
            # Where no word fits, the shell offers files.
            "complete -o default -F _calor calor",
        ]
    )


def _fish(commands):
    lines = ["complete -c calor -n __fish_use_subcommand -l version -l debug -l help"]
    for name, options in commands.items():
        described = COMMANDS[name].replace("'", "\\'")
        lines.append(f"complete -c calor -n __fish_use_subcommand -f -a {name} -d '{described}'")
        seen = f"-n '__fish_seen_subcommand_from {name}'"
        for option, choices in options.items():
            values = f" -x -a '{' '.join(choices)}'" if choices else ""
            if option.startswith("--"):
                lines.append(f"complete -c calor {seen} -l {option[2:]}{values}")
            elif option:
                lines.append(f"complete -c calor {seen} -s {option[1:]}{values}")
            elif choices:
                lines.append(f"complete -c calor {seen} -f -a '{' '.join(choices)}'")
    return "\n".join(lines)
