//! The ledger as a program of the exec protocol: `ledger-backend DIRECTORY OPERATION`.

use std::{
    io::{self, Read},
    path::Path,
};

use anyhow::{Context, Result};
use chaos_tests::ledger::program;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what| arguments.next().with_context(|| format!("the {what} is missing"));
    let (root, operation) = (next("ledger's directory")?, next("operation")?);
    let mut request = Vec::new();
    io::stdin().read_to_end(&mut request).context("cannot read the request")?;
    program::run(Path::new(&root), &operation, &request, &mut io::stdout().lock())
}
