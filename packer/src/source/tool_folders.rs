//! Folders that programs leave in a tree of images. torchvision takes them for classes, so shade
//! does, and says so.

/// Names of such folders.
const NAMES: [&str; 15] = [
    ".ipynb_checkpoints",
    "__MACOSX",
    "__pycache__",
    "@eaDir",
    "lost+found",
    ".git",
    ".svn",
    ".hg",
    ".cache",
    ".thumbnails",
    ".Trash",
    ".idea",
    ".vscode",
    "$RECYCLE.BIN",
    "System Volume Information",
];

/// Folders that are named to people.
const NAMED_MAX: usize = 5;

/// Whether a folder of this name is a program's.
pub(super) fn is_of_a_tool(name: &str) -> bool {
    NAMES.iter().any(|known| known.eq_ignore_ascii_case(name)) || name.starts_with(".Trash-")
}

/// What to say of images that were found in such folders; `None` without any.
pub(super) fn note(folders: &[String]) -> Option<String> {
    let first = folders.first()?;
    let named: Vec<String> = folders.iter().take(NAMED_MAX).map(|folder| format!("'{folder}'")).collect();
    let more = match folders.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let name = first.rsplit('/').next().unwrap_or_default();
    Some(format!(
        "images are packed from folders that programs make, {}{more}; to leave such folders out: --exclude '{name}'",
        named.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_programs_are_known_and_named() {
        for name in [".ipynb_checkpoints", "__macosx", "@eaDir", ".Trash-1000", "lost+found"] {
            assert!(is_of_a_tool(name), "{name}");
        }
        for name in ["cat", ".hidden", "git", "MACOSX"] {
            assert!(!is_of_a_tool(name), "{name}");
        }
        assert_eq!(note(&[]), None);
        let folders: Vec<String> = (0..7).map(|n| format!("{n}/.git")).collect();
        let text = note(&folders).unwrap();
        assert!(text.contains("'4/.git' and 2 more") && text.ends_with("--exclude '.git'"), "{text}");
    }
}
