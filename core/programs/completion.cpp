// trainyard completion: prints the script with which a shell completes command lines.
#include <cstdio>

#include "core/programs/programs.hpp"

namespace trainyard::cli {
namespace {

/// Returns the script that the shell reads at its start, which calls `trainyard __complete WORD...`.
std::string completion_script(const std::string& shell) {
  if (shell == "bash")
    return R"(# Completion of trainyard: source <(trainyard completion bash)
_trainyard() {
  local line=${COMP_LINE:0:COMP_POINT} words word reply
  read -ra words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  word=${words[-1]}
  # Of a word with = or : bash replaces what stands behind the last of them.
  local before=
  [[ $word == *[=:]* ]] && before=${word%"${word##*[=:]}"}
  COMPREPLY=()
  while IFS= read -r reply; do
    COMPREPLY+=("${reply#"$before"}")
  done < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
  [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=./] ]] && compopt -o nospace
  return 0
}
complete -F _trainyard trainyard
)";
  if (shell == "zsh")
    return R"(#compdef trainyard
# Completion of trainyard: source <(trainyard completion zsh), behind compinit
_trainyard() {
  local -a replies ends goes_on
  replies=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  goes_on=(${(M)replies:#*[=./]})
  ends=(${replies:#*[=./]})
  compadd -Q -S '' -- $goes_on
  compadd -Q -- $ends
}
compdef _trainyard trainyard
)";
  return R"(# Completion of trainyard: trainyard completion fish | source
function __trainyard_complete
    set -l words (commandline -opc)
    set -l begun (commandline -ct)
    $words[1] __complete $words[2..-1] "$begun" 2>/dev/null
end
complete -c trainyard -f -a '(__trainyard_complete)'
)";
}

int completion(std::string& shell) {
  std::fputs(completion_script(shell).c_str(), stdout);
  return 0;
}

}  // namespace

void add_completion(Arguments verb, CommandLine& line) {
  const auto shell = std::make_shared<std::string>();
  verb.add("shell", *shell, "bash: source <(trainyard completion bash)")
      .required()
      .one_of({"bash", "zsh", "fish"});
  when_chosen(verb, line, shell, completion);
}

}  // namespace trainyard::cli
