"""Every name that a table may write under `checks:`, and the function it stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sandboxd.classify import predicates, services, wrappers
from sandboxd.classify.arguments import Arguments
from sandboxd.classify.findings import Context, Finding
from sandboxd.classify.languages import awk, condition, dd, find, git, jq, python, sed, sql, tar

Check = Callable[[Arguments, Context], Finding]

CHECKS: Mapping[str, Check] = {
    **{
        function.__name__: function
        for function in (
            predicates.change_directory,
            predicates.date_format,
            predicates.decompresses_to_stdout,
            predicates.exports_variables,
            predicates.kill_everything,
            predicates.listing_only,
            predicates.move_into_void,
            predicates.moves_directory,
            predicates.needs_operand,
            predicates.no_assignment_operand,
            predicates.no_response_file,
            predicates.old_style_cluster,
            predicates.option_first,
            predicates.output_not_terminal,
            predicates.pager_needs_pipe,
            predicates.recursive_on_root,
            predicates.set_options,
            predicates.sets_variables,
            predicates.shell_state,
            predicates.signal_free,
            predicates.state_when_given,
            predicates.sysctl_names,
            predicates.terminal_size_only,
            predicates.text_to_stdout,
            services.api_request,
            services.deletes,
            services.deploys,
            services.dns_names,
            services.http_header,
            services.http_request,
            services.kubectl_kinds,
            services.kubectl_output,
            services.mentions_drop,
            services.no_dump,
            services.no_fix,
            services.publishes,
            services.redis_command,
            services.remote_copy,
            services.wget_request,
            services.zero_replicas,
            wrappers.anywhere,
            wrappers.bash,
            wrappers.command,
            wrappers.env,
            wrappers.execute,
            wrappers.interpreter,
            wrappers.joined_text,
            wrappers.option_text,
            wrappers.posix_shell,
            wrappers.trap,
            wrappers.xargs,
            wrappers.zsh,
        )
    },
    "awk": awk.awk,
    "condition": condition.test,
    "dd": dd.dd,
    "double_bracket": condition.double_bracket,
    "fd": find.fd,
    "find": find.find,
    "git_branch": git.branch,
    "git_checkout": git.checkout,
    "git_clean": git.clean,
    "git_config": git.config,
    "git_drivers": git.drivers,
    "git_format": git.log_format,
    "git_ls_remote": git.ls_remote,
    "git_options": git.options,
    "git_push": git.push,
    "git_restore": git.restore,
    "git_rm": git.rm,
    "git_symbolic_ref": git.symbolic_ref,
    "git_tag": git.tag,
    "jq": jq.jq,
    "mysql": sql.mysql,
    "python": python.python,
    "psql": sql.psql,
    "sed": sed.sed,
    "sqlite": sql.sqlite,
    "tar": tar.tar,
}
