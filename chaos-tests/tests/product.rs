//! The product that tests run is the one of this checkout.
#![allow(clippy::unwrap_used)]

use chaos_tests::product::{self, Profile};

#[test]
fn the_product_is_built_and_found() {
    let program = product::build(Profile::Dev).unwrap();
    assert!(program.is_file(), "{} is no file", program.display());
    assert_eq!(program.file_name().unwrap(), "kube-provisioner");
}
