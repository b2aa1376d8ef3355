"""`completion`: shell scripts that complete commands and options."""

import argparse
from collections.abc import Mapping

from ...losses.base import Loss
from ...optim.base import Optimizer
from ..parser.namespace import Namespace
from ..parser.plugins import options_of

_BASH = """_edgetrain() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} last=${{COMP_WORDS[COMP_CWORD-1]}} words=
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{commands}" -- "$word")); return
  fi
  case "${{COMP_WORDS[1]}} $last" in
{choices}
  esac
  if [ -n "$words" ]; then COMPREPLY=($(compgen -W "$words" -- "$word")); return; fi
  case "${{COMP_WORDS[1]}}" in
{options}
  esac
  case "$word" in
    -*) COMPREPLY=($(compgen -W "$words" -- "$word")) ;;
    *) COMPREPLY=($(compgen -f -- "$word")) ;;
  esac
}}
complete -o filenames -F _edgetrain edgetrain"""


def completion(arguments: Namespace) -> int:
    """Print the completion script for a shell."""
    from ..parser.host_commands import command_parsers

    parsers = command_parsers()
    if arguments.shell == "fish":
        print(_fish(parsers))
        return 0
    script = _bash(parsers)
    print(
        f"autoload -U +X bashcompinit && bashcompinit\n{script}"
        if arguments.shell == "zsh"
        else script
    )
    return 0


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.option_strings]


def _words(action: argparse.Action) -> str:
    """The values to complete for an option, separated by blanks; includes plug-in names, to which
    argparse doesn't restrict the option."""
    known = options_of(Loss) | options_of(Optimizer)
    choices = action.choices or known.get(action.dest, {}).get("choices") or ()
    return " ".join(map(str, choices))


def _bash(parsers: Mapping[str, argparse.ArgumentParser]) -> str:
    choices, options = [], []
    for name, parser in parsers.items():
        words = [flag for action in _actions(parser) for flag in action.option_strings]
        options.append(f'    {name}) words="{" ".join(words)}" ;;')
        for action in _actions(parser):
            if known := _words(action):
                cases = "|".join(f'"{name} {flag}"' for flag in action.option_strings)
                choices.append(f'    {cases}) words="{known}" ;;')
    return _BASH.format(
        commands=" ".join(parsers), choices="\n".join(choices), options="\n".join(options)
    )


def _fish(parsers: Mapping[str, argparse.ArgumentParser]) -> str:
    lines = []
    for name, parser in parsers.items():
        text = _quoted(parser.description or "")
        lines.append(f"complete -c edgetrain -n __fish_use_subcommand -f -a {name} -d {text}")
        for action in _actions(parser):
            flags = " ".join(
                f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
                for flag in action.option_strings
            )
            takes = "" if action.nargs == 0 else " -r"
            words = f" -a {_quoted(_words(action))}" if _words(action) else ""
            lines.append(
                f"complete -c edgetrain -n '__fish_seen_subcommand_from {name}' {flags}{takes}"
                f"{words} -d {_quoted((action.help or '').split(';')[0])}"
            )
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("%%", "%").replace("'", "\\'") + "'"
