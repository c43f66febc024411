//! YAML that a template engine has yet to fill in: Helm's and Ansible's `{{ ... }}`.
//!
//! Source: Helm's documentation, "The Chart Template Guide".

use topology::bounded::{self, YamlKind, YamlValue};
use vmconfig::source::Span;

/// Texts that other programs read, with templates of their own.
const FOREIGN: [&str; 3] = ["userData", "networkData", "annotations"];

/// The first place that an engine has to fill in before anybody can read the text.
pub(crate) fn placeholder(text: &str) -> Option<Span> {
    if !text.contains("{{") {
        return None;
    }
    match bounded::yaml(text) {
        Ok(documents) => documents.iter().find_map(|document| find(text, document, false)),
        // Control structures break YAML.
        Err(_) => in_lines(text),
    }
}

/// In KubeVirt's objects a text may be a placeholder too; in others it may be meant
/// for somebody else.
fn find(text: &str, value: &YamlValue, ours: bool) -> Option<Span> {
    match &value.kind {
        YamlKind::Scalar(scalar) => {
            let begin = scalar.find("{{").filter(|_| ours)?;
            scalar[begin..].contains("}}").then_some(value.span)
        }
        YamlKind::List(items) => items.iter().find_map(|item| find(text, item, ours)),
        YamlKind::Map(entries) => {
            // To YAML's mind that is a map in a map, but nobody means one.
            let own = text.get(value.span.start..).filter(|own| own.starts_with("{{"));
            if let Some(own) = own {
                let end = own.find("}}").map_or(value.span.end, |end| value.span.start + end + 2);
                return Some(Span { start: value.span.start, end });
            }
            let of_kubevirt = entries.iter().any(|(key, version)| {
                key.text == "apiVersion"
                    && matches!(&version.kind, YamlKind::Scalar(text) if text.contains("kubevirt.io/"))
            });
            let ours = ours || of_kubevirt;
            entries
                .iter()
                .filter(|(key, _)| !FOREIGN.contains(&key.text.as_str()))
                .find_map(|(_, value)| find(text, value, ours))
        }
    }
}

/// The first line that is a placeholder or has one as its value.
fn in_lines(text: &str) -> Option<Span> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        let at = match trimmed.starts_with("{{") {
            true => Some(indent),
            false => [": {{", "- {{"].iter().filter_map(|what| Some(line.find(what)? + 2)).min(),
        };
        if let Some(at) = at {
            let end = line[at..].find("}}").map_or(line.trim_end().len(), |end| at + end + 2);
            return Some(Span { start: start + at, end: start + end });
        }
        start += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_found_where_somebody_fills_them_in() {
        let check = |text: &str, expected: Option<&str>| {
            let found = placeholder(text).map(|span| &text[span.start..span.end]);
            assert_eq!(found, expected, "{text}");
        };
        let vm = "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\n";
        check(&format!("{vm}spec: {{{{ .Values.spec }}}}\n"), Some("{{ .Values.spec }}"));
        check(
            &format!("{vm}metadata:\n  name: \"vm-{{{{ .Release.Name }}}}\"\n"),
            Some("\"vm-{{ .Release.Name }}\""),
        );
        check(
            &format!("{vm}spec:\n{{{{- if .Values.gpu }}}}\n  a: 1\n{{{{- end }}}}\n"),
            Some("{{- if .Values.gpu }}"),
        );
        check(
            &format!("{vm}spec:\n  - {{{{- toYaml . | nindent 4 }}}}\n   - b: [\n"),
            Some("{{- toYaml . | nindent 4 }}"),
        );
        // cloud-init has templates of its own, and so have other objects.
        check(&format!("{vm}spec:\n  userData: |\n    name: {{{{ v1.local_hostname }}}}\n"), None);
        check(
            &format!("{vm}---\nkind: ConfigMap\ndata:\n  rule: 'for {{{{ $labels.name }}}}'\n"),
            None,
        );
        check(vm, None);
        check("a: {b: {c: 1}}\n", None);
    }
}
