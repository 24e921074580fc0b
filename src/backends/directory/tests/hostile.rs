//! Names, paths, links and volumes that try to reach beyond the base, or that are not ours.

use proptest::prelude::*;

use super::*;

#[tokio::test]
async fn links_in_a_volume_are_removed_and_never_followed() {
    let place = Place::new();
    let volume = place.provision().await.unwrap();
    fs::create_dir(place.base("neighbour")).unwrap();
    fs::write(place.base("neighbour/file"), "x").unwrap();
    fs::create_dir(place.base(NAME).join("deep")).unwrap();
    for (number, target) in
        [place.outside(), place.base("neighbour"), "../../outside".into(), "..".into()].iter().enumerate()
    {
        symlink(target, place.base(NAME).join(format!("link{number}"))).unwrap();
        symlink(target, place.base(NAME).join(format!("deep/link{number}"))).unwrap();
    }
    place.backend.delete(&volume).await.unwrap();
    assert!(place.base("neighbour/file").exists());
    place.assert_outside_untouched();
}

#[tokio::test]
async fn hostile_names_are_refused_and_touch_nothing() {
    let place = Place::new();
    for hostile in
        ["", ".", "..", "../outside", "/etc", "a/b", "a\0b", ".kube-provisioner", "../outside/treasure"]
    {
        let error = place.backend.provision(options(hostile)).await.unwrap_err();
        assert!(matches!(error, ProvisionError::Infeasible(_)), "{hostile:?}: {error:?}");
        let mut volume = PersistentVolume::default();
        volume.metadata.name = Some(hostile.into());
        let error = place.backend.delete(&volume).await.unwrap_err();
        assert!(error.to_string().contains("refused"), "{hostile:?}: {error}");
    }
    assert_eq!(fs::read_dir(place.base("")).unwrap().count(), 0);
    place.assert_outside_untouched();
}

#[tokio::test]
async fn a_forged_volume_whose_path_is_not_its_own_is_refused_and_touches_nothing() {
    let place = Place::new();
    let volume = place.provision().await.unwrap();
    let base = place.base("").to_str().unwrap().trim_end_matches('/').to_owned();
    let outside = place.outside().to_str().unwrap().to_owned();
    let forged = [
        outside.clone(),
        format!("{base}/../outside"),
        format!("{base}/{NAME}/"),
        format!("{base}/{NAME}/../../outside"),
        format!("{base}//{NAME}"),
        format!("{base}/other"),
        base.clone(),
        String::new(),
        "/".into(),
    ];
    for path in forged {
        let volume = at(volume.clone(), &path);
        let error = place.backend.delete(&volume).await.unwrap_err();
        assert!(matches!(&error, DeleteError::Failed(_)), "{path}: {error:?}");
        assert!(error.to_string().contains("nothing was touched"), "{path}: {error}");
        place.backend.keep(&volume, &call("cluster/example.com/dir")).await.unwrap();
    }
    let mut other_kind = volume.clone();
    other_kind.spec.as_mut().unwrap().host_path = None;
    place.backend.delete(&other_kind).await.unwrap_err();
    assert!(place.base(NAME).exists() && !place.state("kept").join(NAME).exists());
    place.assert_outside_untouched();
}

fn right_path() -> Vec<String> {
    ["BASE", "/", NAME].map(str::to_owned).to_vec()
}

fn piece() -> impl Strategy<Value = String> {
    let tricks = prop::sample::select(vec!["BASE", NAME, "/", "..", ".", "\0"]).prop_map(str::to_owned);
    prop_oneof![tricks, "\\PC{0,4}"]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Paths made of pieces of the right one, of what path tricks are made of, and of anything.
    #[test]
    fn only_the_one_path_that_this_backend_would_have_made_is_taken(
        pieces in prop_oneof![9 => prop::collection::vec(piece(), 0..6), 1 => Just(right_path())],
    ) {
        let place = Place::new();
        let base = place.base("").to_str().unwrap().trim_end_matches('/').to_owned();
        let path = pieces.concat().replace("BASE", &base);
        let mut volume = PersistentVolume { spec: Some(PersistentVolumeSpec::default()), ..Default::default() };
        volume.metadata.name = Some(NAME.into());
        volume.spec.as_mut().unwrap().host_path = Some(HostPathVolumeSource { path: path.clone(), type_: None });
        prop_assert_eq!(place.backend.own(&volume).is_ok(), path == format!("{base}/{NAME}"));
    }
}

#[tokio::test]
async fn a_link_or_file_in_a_volumes_place_is_neither_adopted_nor_removed() {
    let place = Place::new();
    let volume = place.provision().await.unwrap();
    place.backend.delete(&volume).await.unwrap();
    symlink(place.outside(), place.base(NAME)).unwrap();
    let error = place.provision().await.unwrap_err();
    assert!(
        matches!(&error, ProvisionError::Finished(_)) && error.to_string().contains("not a directory"),
        "{error:?}"
    );
    place.backend.delete(&volume).await.unwrap_err();
    assert!(fs::symlink_metadata(place.base(NAME)).unwrap().is_symlink());
    place.assert_outside_untouched();
}

#[tokio::test]
async fn what_another_installation_made_is_neither_adopted_nor_removed() {
    let place = Place::new();
    let volume = place.provision().await.unwrap();
    let mut foreign = options(NAME);
    foreign.call = call("other/example.com/dir");
    let error = place.backend.provision(foreign).await.unwrap_err();
    assert!(
        matches!(&error, ProvisionError::Finished(_)) && error.to_string().contains("installation"),
        "{error:?}"
    );
    let error = place.backend.delete_with(&volume, &call("other/example.com/dir")).await.unwrap_err();
    assert!(error.to_string().contains("cluster/example.com/dir"), "{error}");
    // The way out that the message names.
    assert!(error.to_string().contains(".kube-provisioner/markers/"), "{error}");
    assert!(place.base(NAME).exists());
}
