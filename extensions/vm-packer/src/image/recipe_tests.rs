use super::*;

fn options(folder: &Path, files: &[&str]) -> PackerOptions {
    PackerOptions {
        template: Some(folder.join("template.json").display().to_string()),
        files: files.iter().map(|file| (*file).to_owned()).collect(),
        ..PackerOptions::default()
    }
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("template.json"), "{}").unwrap();
    std::fs::create_dir(folder.path().join("scripts")).unwrap();
    std::fs::write(folder.path().join("scripts/a.sh"), "echo a").unwrap();
    std::os::unix::fs::symlink("a.sh", folder.path().join("scripts/b.sh")).unwrap();
    folder
}

#[test]
fn every_change_in_template_variables_and_files_makes_another_image() {
    let folder = folder();
    let base = options(folder.path(), &["scripts"]);
    let first = Recipe::read(&base).unwrap().hash;
    assert_eq!(Recipe::read(&base).unwrap().hash, first, "equal recipes are one image");

    let mut other = base.clone();
    other.variables.insert("disk_mb".into(), "1".into());
    assert_ne!(Recipe::read(&other).unwrap().hash, first);
    assert_ne!(Recipe::read(&options(folder.path(), &[])).unwrap().hash, first);

    std::fs::set_permissions(folder.path().join("scripts/a.sh"), std::fs::Permissions::from_mode(0o755))
        .unwrap();
    let second = Recipe::read(&base).unwrap().hash;
    assert_ne!(second, first, "a file that became a program");
    std::fs::write(folder.path().join("scripts/a.sh"), "echo b").unwrap();
    let third = Recipe::read(&base).unwrap().hash;
    assert_ne!(third, second, "another content");
    std::fs::write(folder.path().join("template.json"), "{ }").unwrap();
    assert_ne!(Recipe::read(&base).unwrap().hash, third, "another template");
}

#[test]
fn a_build_gets_what_was_hashed_and_nothing_else() {
    let folder = folder();
    std::fs::write(folder.path().join("not-declared"), "x").unwrap();
    let recipe = Recipe::read(&options(folder.path(), &["scripts"])).unwrap();
    let staged = tempfile::tempdir().unwrap();
    recipe.stage(staged.path()).unwrap();
    assert_eq!(std::fs::read_to_string(staged.path().join("scripts/b.sh")).unwrap(), "echo a");
    assert!(staged.path().join("template.json").exists());
    assert!(!staged.path().join("not-declared").exists());

    std::fs::write(folder.path().join("scripts/a.sh"), "echo later").unwrap();
    let again = tempfile::tempdir().unwrap();
    assert_eq!(recipe.stage(again.path()).unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn what_leads_out_of_the_folder_is_refused() {
    let folder = folder();
    for path in ["../outside", ".", "scripts/../..", ""] {
        let refused = Recipe::read(&options(folder.path(), &[path])).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{path}");
    }
    std::os::unix::fs::symlink("/etc/hostname", folder.path().join("scripts/out")).unwrap();
    let refused = Recipe::read(&options(folder.path(), &["scripts"])).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
}

#[test]
fn a_missing_template_says_where_one_may_be() {
    let nowhere =
        PackerOptions { template: Some("/nowhere/template.json".into()), ..PackerOptions::default() };
    let error = Recipe::read(&nowhere).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.hint().unwrap().contains("builtin:small"));
    let builtin = PackerOptions { template: Some("builtin:small".into()), ..PackerOptions::default() };
    assert_eq!(Recipe::read(&builtin).unwrap().template, "template.json");
}
