r"""The scripts with which shells complete: what cyclopts writes, called with the words that the command will get.

The generated scripts take the words of the line for those of the command. But shells hand over quotes and backslashes,
too, and bash also splits words at the ``:``, ``=`` and ``@`` of its COMP_WORDBREAKS. Names of jobs, paths of savepoints
and addresses contain these, so what is added here restores the words first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from cyclopts import App

Shell = Literal["bash", "zsh", "fish"]

_BASH = r"""
# Set REPLY to a word without its quotes and backslashes, and _mark to the quote that is still open.
_emberkeep_unquoted() {
  local char i
  REPLY= _mark=
  for ((i = 0; i < ${#1}; i++)); do
    char="${1:i:1}"
    if [[ $char == "\\" && $_mark != "'" ]]; then
      ((++i))
      REPLY+="${1:i:1}"
    elif [[ $char == "$_mark" ]]; then
      _mark=
    elif [[ -z $_mark && $char == ["'\""] ]]; then
      _mark="$char"
    else
      REPLY+="$char"
    fi
  done
}

# Complete whole words. Bash splits them at COMP_WORDBREAKS, and replaces only the part behind the last split.
_emberkeep_whole_words() {
  local -a whole=()
  local rest="$COMP_LINE" piece joined last= kept= apart i REPLY _mark
  for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
    piece="${COMP_WORDS[i]}" apart=1
    [[ $rest == [![:space:]]* && ( $piece == +([:=@]) || $last == +([:=@]) ) ]] && apart=
    rest="${rest#"${rest%%[![:space:]]*}"}"
    rest="${rest#"$piece"}"
    if [[ $apart || ${#whole[@]} -lt 2 ]]; then
      whole+=("$piece")
    else
      whole[-1]+="$piece"
    fi
    last="$piece"
    ((i == COMP_CWORD)) && break
  done
  # What bash keeps of the word under the cursor. It replaces an @ together with what follows.
  joined="${whole[-1]}"
  [[ $last == +([:=]) ]] && last=
  kept="${joined%"$last"}"
  kept="${kept%@}"
  # The generated script knows the value of `--option=value` as a word of its own.
  if [[ $joined == --*([^=:])=* ]]; then
    whole[-1]="${joined%%=*}"
    whole+=("${joined#*=}")
    kept="${kept#*=}"
  fi
  local -a COMP_WORDS=("${whole[0]}")
  for piece in "${whole[@]:1}"; do
    _emberkeep_unquoted "$piece"
    COMP_WORDS+=("$REPLY")
  done
  local COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) mark="$_mark"
  _emberkeep "$@"

  _emberkeep_unquoted "$kept"
  kept="$REPLY"
  for i in "${!COMPREPLY[@]}"; do
    eval "piece=${COMPREPLY[i]}"  # as printf %q has written it
    piece="${piece#"$kept"}"
    [[ $mark ]] || printf -v piece %q "$piece"
    COMPREPLY[i]="$piece"
  done
}

complete -F _emberkeep_whole_words emberkeep
"""

# Zsh finds the installed script by its name. The printed one may be sourced or evaluated, or have any name in a
# directory of fpath.
_ZSH = r"""
functions[_emberkeep_of_words]=$functions[_cyclopts_emberkeep]
_cyclopts_emberkeep() {
  local -a whole
  local word
  for word in "${(@)words[1,CURRENT-1]}"; do
    # To _arguments, `--option=value` is one option that it does not know.
    [[ $word == --[a-z-]##=* ]] && whole+=("${(Q)word%%=*}" "${(Q)word#*=}") || whole+=("${(Q)word}")
  done
  # QIPREFIX: a quote that is still open.
  word="${words[CURRENT]#$QIPREFIX}"
  [[ -n $QIPREFIX ]] || word="${(Q)word}"
  whole+=("$word" "${(@)words[CURRENT+1,-1]}")
  (( CURRENT += $#whole - $#words ))
  words=("${(@)whole}")
  _emberkeep_of_words "$@"
}

case ${zsh_eval_context[-1]} in
  loadautofunc|shfunc) _cyclopts_emberkeep "$@" ;;
  *) compdef _cyclopts_emberkeep emberkeep ;;
esac
"""

# Fish removes quotes and backslashes from all words except the one under the cursor.
_FISH = r"""
function __fish_emberkeep_complete
    set -l word (string unescape -- (commandline -ct))
    set -l lines (emberkeep __complete (commandline -pco)[2..] "$word" 2>/dev/null)
    if set -l i (contains -i -- \x1f'begin' $lines)
        set lines $lines[(math $i + 1)..]
    end
    set -q lines[1]; or return
    printf '%s\n' $lines | string match --invert --regex '^\x1f' | string replace --regex '^([^\t]*\t[^\t]*)\t.*$' '$1'
end
"""

# The generated script inserts names of files as they are, although they may contain what bash would run.
_PLAIN_FILES = 'COMPREPLY=( $(compgen -f -- "${cur}") )'
_QUOTED_FILES = """COMPREPLY=()
local _q _x
while IFS= read -r _x; do
  { printf -v _q '%q' "$_x"; COMPREPLY+=("$_q"); }
done < <(compgen -f -- "${cur}")"""

_ADDED = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def completion_script(app: App, shell: Shell) -> str:
    """Return the script with which ``shell`` completes the words of ``app``."""
    script = app.generate_completion(shell=shell) + _ADDED[shell]
    return script.replace(_PLAIN_FILES, _QUOTED_FILES) if shell == "bash" else script
