//! Tests of the image cache.

use vmconfig::Arch;

use super::*;

fn put_image(cache: &Path, recipe: &Recipe) -> PathBuf {
    let folder = images_dir(cache).join(folder_name(recipe));
    fs::create_dir_all(&folder).unwrap();
    for name in [KERNEL, INITRD, ROOT_IMAGE] {
        fs::write(folder.join(name), "x").unwrap();
    }
    let manifest = Manifest {
        name: recipe.name.clone(),
        recipe_hash: recipe.hash(),
        content_hash: "c0ffee".into(),
        built_unix_s: 1,
        cmdline: recipe.cmdline.clone(),
        packages: vec![PackageVersion { name: "fio".into(), version: "3.33-3".into() }],
        size_bytes: 3,
    };
    fs::write(folder.join(MANIFEST), serde_json::to_string(&manifest).unwrap()).unwrap();
    folder
}

fn recipes() -> (Recipe, Recipe) {
    let current = Recipe::builtin(BUILTIN, Arch::X86_64).unwrap();
    let mut older = current.clone();
    older.packages.pop();
    (current, older)
}

#[test]
fn the_cache_lists_whole_old_and_unfinished_images() {
    let cache = tempfile::tempdir().unwrap();
    assert_eq!(list_in(cache.path()).unwrap(), []);
    let (current, older) = recipes();
    let current_folder = put_image(cache.path(), &current);
    let older_folder = put_image(cache.path(), &older);
    fs::remove_file(older_folder.join(KERNEL)).unwrap();
    let unfinished = images_dir(cache.path()).join(unfinished_name("debian-12-0123456789ab"));
    fs::create_dir(&unfinished).unwrap();

    let seen = |folder: &Path| {
        let listed = list_in(cache.path()).unwrap();
        let image = listed.iter().find(|image| image.folder == folder).unwrap();
        (image.name.clone(), image.complete, image.current, image.built_unix_s)
    };
    let name = || BUILTIN.to_owned();
    assert_eq!(seen(&current_folder), (name(), true, true, Some(1)));
    assert_eq!(seen(&older_folder), (name(), false, false, None));
    assert_eq!(seen(&unfinished), (name(), false, false, None));
}

#[test]
fn images_are_removed_by_name_or_hash() {
    let cache = tempfile::tempdir().unwrap();
    let (current, older) = recipes();
    put_image(cache.path(), &current);
    put_image(cache.path(), &older);
    let short = |recipe: &Recipe| recipe.hash()[..SHORT_HASH].to_owned();

    let removed = remove_in(cache.path(), &short(&older)[..6]).unwrap();
    assert_eq!(removed.len(), 1);
    assert_eq!(removed[0].short_hash, short(&older));
    assert!(find_in(cache.path(), &current).is_some());

    let error = remove_in(cache.path(), "no-such").unwrap_err();
    assert!(error.to_string().contains("vmlab image list"), "{error}");

    assert_eq!(remove_in(cache.path(), "builtin:debian-12").unwrap().len(), 1);
    assert_eq!(list_in(cache.path()).unwrap(), []);
}

#[test]
fn an_image_with_a_kernel_of_the_backports_is_listed_and_removed_by_its_name() {
    let cache = tempfile::tempdir().unwrap();
    let name = "debian-12+linux-image-cloud-amd64/bookworm-backports";
    let recipe = Recipe::builtin(name, Arch::X86_64).unwrap();
    let folder = put_image(cache.path(), &recipe);
    assert_eq!(folder.parent(), Some(&*images_dir(cache.path())), "one folder, whatever the name");
    let listed = list_in(cache.path()).unwrap();
    assert_eq!((listed.len(), &*listed[0].name, listed[0].current), (1, name, true));
    assert!(find_in(cache.path(), &recipe).is_some());
    assert_eq!(remove_in(cache.path(), name).unwrap().len(), 1);
    assert_eq!(list_in(cache.path()).unwrap(), []);
}

#[test]
fn an_image_under_construction_is_not_removed() {
    let cache = tempfile::tempdir().unwrap();
    let (current, _) = recipes();
    put_image(cache.path(), &current);
    let held = open_lock(&images_dir(cache.path()), &folder_name(&current)).unwrap();
    held.try_lock().unwrap();
    assert!(matches!(remove_in(cache.path(), BUILTIN), Err(CacheError::Busy { .. })));
    drop(held);
    assert!(remove_in(cache.path(), BUILTIN).is_ok());
}

#[test]
fn an_image_in_the_cache_is_used_without_writing() {
    let cache = tempfile::tempdir().unwrap();
    let (current, _) = recipes();
    let folder = put_image(cache.path(), &current);
    let image = build_in(cache.path(), &current, &mut |_| panic!("nothing to do"), &Cancel::new());
    assert_eq!(image.unwrap().folder, folder);
    let files = fs::read_dir(images_dir(cache.path())).unwrap().count();
    assert_eq!(files, 1, "no lock file was made");
}

#[test]
fn a_cache_that_cannot_be_made_is_said() {
    let (current, _) = recipes();
    let error = build_in(Path::new("/proc/vmlab"), &current, &mut |_| (), &Cancel::new());
    let text = error.unwrap_err().to_string();
    assert!(text.contains("/proc/vmlab"), "{text}");
}

#[test]
fn waiting_for_another_build_can_be_cancelled() {
    let cache = tempfile::tempdir().unwrap();
    let (current, _) = recipes();
    fs::create_dir_all(images_dir(cache.path())).unwrap();
    let held = open_lock(&images_dir(cache.path()), &folder_name(&current)).unwrap();
    held.try_lock().unwrap();
    let cancel = Cancel::new();
    let flag = cancel.clone();
    let mut stages = Vec::new();
    let mut progress = |progress: BuildProgress| {
        stages.push(progress.stage);
        flag.cancel();
    };
    let result = build_in(cache.path(), &current, &mut progress, &cancel);
    assert!(matches!(result, Err(BuildError::Cancelled(_))));
    assert_eq!(stages, [BuildStage::WaitingForOther]);
}
