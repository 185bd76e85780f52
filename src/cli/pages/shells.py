"""Completions of bash, zsh and fish. Devices and models are asked of the program when they are wanted."""
import re


# ---- bash ----------------------------------------------------------------------------------------

BASH = r"""# bash completion for weft, made from the tables of the program

# Sets kind to what is offered behind an option, and options to those of the command: _weft_table COMMAND OPTION
# kind: "flag" takes nothing, "none" has a value that nobody can list; model, device, file, folder; else the words themselves.
_weft_table() {
    kind=flag
    case $1 in
@TABLE@
    esac
}

# Offers what begins with $2 for a kind; models and devices of the program $3.
_weft_offer() {
    local words=
    case $1 in
    flag | none) return ;;
    file | folder | model) compopt -o filenames 2>/dev/null ;;&
    file) mapfile -t COMPREPLY < <(compgen -f -- "$2") ;;
    folder) mapfile -t COMPREPLY < <(compgen -d -- "$2") ;;
    model)
        words=$("$3" list -q 2>/dev/null | awk 'NR > 1 {print $1}')
        mapfile -t COMPREPLY < <(compgen -f -- "$2"; compgen -W "$words" -- "$2")
        ;;
    device)
        words="auto gpu $("$3" --list-devices 2>/dev/null | awk '{print $1}')"
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$2")
        ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2") ;;
    esac
}

# Finds the command in words, and where the arguments behind it begin.
_weft_command() {
    local two="${words[1]} ${words[2]}"
    command=${words[1]} first=2
    if ((${#words[@]} > 3)) && [[ ' @PAIRS@ ' == *" ${two/ /-} "* ]]; then command=$two first=3; fi
}

# What a word that is no option stands for: the kind of the argument of its number.
_weft_positional() {
    local i n=0 last=$((${#words[@]} - 1))
    for ((i = first; i < last; i++)); do
        if [[ ${words[i]} != -* ]]; then n=$((n + 1)); continue; fi
        _weft_table "$command" "${words[i]}"
        if [[ $kind != flag && ${words[i]} != *=* ]]; then i=$((i + 1)); fi
    done
    case "$command $n" in
@WORDS@
    *) kind=none ;;
    esac
}

_weft() {
    local words command first kind options='' program=${1/#\~/$HOME}
    local line=${COMP_LINE:0:COMP_POINT}
    COMPREPLY=()
    read -ra words <<<"$line" # not COMP_WORDS, which breaks at : and =
    if [[ $line == *[[:space:]] ]]; then words+=(''); fi
    local last=$((${#words[@]} - 1))
    local current=${words[last]} previous=${words[last - 1]}
    if ((last == 1)); then
        _weft_offer '@COMMANDS@ help @OPTIONS@' "$current" "$program"
        return
    fi
    if [[ ${words[1]} == help ]]; then
        if ((last == 2)); then _weft_offer '@COMMANDS@' "$current" "$program"; fi
        return
    fi
    _weft_command
    _weft_table "$command" "$previous"
    if [[ $current == --*=* ]]; then
        _weft_table "$command" "${current%%=*}"
        _weft_offer "$kind" "${current#*=}" "$program"
    elif ((last > first)) && [[ $previous == -* && $kind != flag ]]; then
        _weft_offer "$kind" "$current" "$program"
    elif [[ $current == -* ]]; then
        _weft_offer "$options" "$current" "$program"
    else
        _weft_positional
        _weft_offer "$kind" "$current" "$program"
        case "$command/$last" in
@SECONDS@
        esac
    fi
    current=${current#--*=}
    if [[ $current == *:* && $COMP_WORDBREAKS == *:* ]]; then # bash replaces what is behind the last colon
        local head=${current%"${current##*:}"}
        COMPREPLY=("${COMPREPLY[@]#"$head"}")
    fi
}

complete -F _weft weft
"""


def first_words(program):
    return " ".join(command.name for command in program.commands if " " not in command.name)


def by_kind(command):
    """Options that take a value, those of a kind together."""
    kinds = {}
    for option in command.options:
        if option.kind is not None:
            kinds.setdefault(option.kind or "none", []).extend(option.spellings)
    return kinds.items()


def bash_table(command):
    rows = [f"        {' | '.join(spellings)}) kind={quoted(kind)} ;;" for kind, spellings in by_kind(command)]
    spellings = " ".join(spelling for option in command.options for spelling in option.spellings)
    return "\n".join([f"    {quoted(command.name)})", f"        options={quoted(spellings)}", '        case ${2%%=*} in', *rows, "        esac", "        ;;"])


def bash_words(command):
    kinds = [option.kind for option in command.words]
    rows = [f"    {quoted(f'{command.name} {n}')}) kind={quoted(kind or 'none')} ;;" for n, kind in enumerate(kinds)]
    return rows + ([f"    {quoted(command.name)}' '*) kind={quoted(command.rest)} ;;"] if command.rest else [])


def seconds(program):
    """First words of commands of two words, with their second words."""
    found = {}
    for command in program.commands:
        first, _, second = command.name.partition(" ")
        if second:
            found.setdefault(first, []).append(second)
    return found.items()


def bash(program):
    second = [f"        {first}/2) mapfile -t -O ${{#COMPREPLY[@]}} COMPREPLY < <(compgen -W '{' '.join(words)}' -- \"$current\") ;;" for first, words in seconds(program)]
    return fill(BASH, TABLE="\n".join(map(bash_table, program.commands)), WORDS="\n".join(row for c in program.commands for row in bash_words(c)),
                PAIRS=" ".join(c.name.replace(" ", "-") for c in program.commands if " " in c.name), SECONDS="\n".join(second),
                COMMANDS=first_words(program), OPTIONS=" ".join(s for spellings, _ in program.options() for s in spellings))


# ---- zsh -----------------------------------------------------------------------------------------

ZSH = r"""#compdef weft
# zsh completion for weft, made from the tables of the program

_weft_devices() {
    local -a devices=(auto gpu ${${(f)"$(_call_program devices $service --list-devices 2>/dev/null)"}%% *})
    _describe device devices -M 'r:|:=*'
}

_weft_models() {
    local -a models=(${${${(f)"$(_call_program models $service list -q 2>/dev/null)"}[2,-1]}%% *})
    _alternative 'files:file:_files' 'models:model:compadd -a models'
}

@FUNCTIONS@

_weft() {
    local -a commands=(
@COMMANDS@
    )
    if (( CURRENT == 2 )); then
        if [[ $words[2] == -* ]]; then
            _arguments @OPTIONS@
        else
            _describe command commands
        fi
        return
    fi
    local command=$words[2] two="$words[2] $words[3]"
    if (( CURRENT > 3 )) && [[ ' @PAIRS@ ' == *" ${two/ /-} "* ]]; then
        command=$two
        shift words
        (( CURRENT-- ))
    fi
    shift words
    (( CURRENT-- ))
    case $command in
    help) (( CURRENT > 2 )) || _describe command commands ;;
@CASES@
    esac
}

_weft "$@"
"""

ZSH_ACTIONS = {"model": "_weft_models", "device": "_weft_devices", "file": "_files", "folder": "_files -/", "": " "}


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def zsh_text(text):
    return re.sub(r"([\[\]:\\])", r"\\\1", text)


def zsh_argument(option):
    action = ZSH_ACTIONS.get(option.kind, f"({option.kind})")
    return f":{zsh_text(option.arg)}:{action}"


def zsh_option(option):
    """A row for each spelling; one excludes the other, unless it may be repeated."""
    again = "repeatable" in option.help
    both = "*" if again else f"({' '.join(option.spellings)})"
    for spelling in option.spellings:
        end = "=" if option.arg and spelling.startswith("--") else ""
        yield quoted(f"{both}{spelling}{end}[{zsh_text(option.brief)}]{zsh_argument(option) if option.arg else ''}")


def zsh_function(command, inner):
    rows = [row for option in command.options for row in zsh_option(option)]
    rows += [quoted(f"{n}:{zsh_text(option.arg)}:{ZSH_ACTIONS.get(option.kind, ' ')}") for n, option in enumerate(command.words, 1)]
    rows += [quoted(f"1:command:({' '.join(inner)})")] if inner and not command.words else []
    rows += [quoted("*:file:_files")] if command.rest else []
    return f"{command.function}() {{\n    _arguments -S : \\\n        " + " \\\n        ".join(rows) + "\n}"


def zsh(program):
    inner = dict(seconds(program))
    commands = [f"        {quoted(f'{c.name}:{c.brief}')}" for c in program.commands if " " not in c.name]
    return fill(ZSH, FUNCTIONS="\n\n".join(zsh_function(c, inner.get(c.name)) for c in program.commands), COMMANDS="\n".join(commands),
                OPTIONS=" ".join(quoted(f"{s}[{zsh_text(text)}]") for spellings, text in program.options() for s in spellings),
                PAIRS=" ".join(c.name.replace(" ", "-") for c in program.commands if " " in c.name),
                CASES="\n".join(f"    {quoted(c.name)}) {c.function} ;;" for c in program.commands))


# ---- fish ----------------------------------------------------------------------------------------

FISH = r"""# fish completion for weft, made from the tables of the program

# Is the command on the line the one named? That of two words goes before that of one.
function __weft_command
    set -l words (commandline -opc)
    set -l two "$words[2] $words[3]"
    if contains -- $two @PAIRS@
        test $two = "$argv"
    else
        test "$words[2]" = "$argv"
    end
end

function __weft_models
    weft list -q 2>/dev/null | tail -n +2 | string replace -r ' .*' ''
end

function __weft_devices
    printf '%s\n' auto gpu
    weft --list-devices 2>/dev/null | string replace -r '\s{2,}' \t
end

function __weft_start
    test (count (commandline -opc)) -eq $argv
end

complete -c weft -f
@ROWS@
"""

FISH_VALUES = {"model": "-r -F -a '(__weft_models)'", "device": "-x -a '(__weft_devices)'", "file": "-r -F", "folder": "-x -a '(__fish_complete_directories)'", "": "-x"}


def fish_quoted(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish_option(condition, option):
    value = "" if option.arg is None else " " + FISH_VALUES.get(option.kind, f"-x -a {fish_quoted(option.kind)}")
    letter = f" -s {option.letter}" if option.letter else ""
    return f"complete -c weft -n {condition}{letter} -l {option.name}{value} -d {fish_quoted(option.brief)}"


def fish_command(command, inner):
    condition = fish_quoted(f"__weft_command {command.name}")
    rows = [f"complete -c weft -n '__weft_start 1' -a {command.name} -d {fish_quoted(command.brief)}"] if " " not in command.name else []
    rows += [f"complete -c weft -n '__weft_start 2; and {condition[1:-1]}' -a {word}" for word in inner]
    rows += [fish_option(condition, option) for option in command.options]
    wanted = {option.kind for option in command.words} | {command.rest}
    rows += [f"complete -c weft -n {condition} -F -a '(__weft_models)'"] if "model" in wanted else []
    return rows + ([f"complete -c weft -n {condition} -F"] if "file" in wanted else [])


def fish_program_option(spellings, text):
    names = " ".join(f"-l {s[2:]}" if s.startswith("--") else f"-s {s[1:]}" for s in spellings)
    return f"complete -c weft -n '__weft_start 1' {names} -d {fish_quoted(text)}"


def fish(program):
    inner = dict(seconds(program))
    rows = [row for command in program.commands for row in fish_command(command, inner.get(command.name, []))]
    rows += [fish_program_option(*option) for option in program.options()]
    rows += [f"complete -c weft -n '__weft_start 1' -a help", f"complete -c weft -n '__weft_start 2; and __weft_command help' -a {quoted(first_words(program))}"]
    return fill(FISH, ROWS="\n".join(rows), PAIRS=" ".join(quoted(c.name) for c in program.commands if " " in c.name))


def fill(template, **parts):
    for name, text in parts.items():
        template = template.replace(f"@{name}@", text)
    return template
