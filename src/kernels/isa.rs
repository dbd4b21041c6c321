//! Which instruction set the kernels use, and the way into code compiled for it.

use std::fmt;

use super::portable::Portable;
use super::simd::SimdOp;
#[cfg(target_arch = "x86_64")]
use super::x86_64::{avx2::Avx2, avx512::Avx512};
use crate::error::{Error, Result};

/// The environment variable that forces an instruction set.
const VARIABLE: &str = "RSGEN_ISA";

/// An instruction set that is present on this machine.
///
/// All of them give the same bits; they differ in speed only.
#[derive(Clone, Copy)]
pub struct Isa(Kind);

#[derive(Clone, Copy)]
enum Kind {
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    Portable(Portable),
}

impl Isa {
    /// The instruction sets of this machine, the fastest first. The portable one is always there.
    pub fn available() -> Vec<Self> {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            found.extend(Avx512::new().map(|token| Self(Kind::Avx512(token))));
            found.extend(Avx2::new().map(|token| Self(Kind::Avx2(token))));
        }
        found.push(Self(Kind::Portable(Portable)));
        found
    }

    /// The instruction set that the environment variable `RSGEN_ISA` (`avx512`, `avx2` or `scalar`) asks for, or else
    /// the fastest one.
    ///
    /// # Errors
    /// When the variable names an instruction set that is unknown, or that this machine does not have.
    pub fn select() -> Result<Self> {
        let wanted = std::env::var(VARIABLE).unwrap_or_default();
        let available = Self::available();
        if wanted.is_empty() {
            return Ok(available[0]);
        }
        available.iter().find(|isa| isa.name() == wanted).copied().ok_or_else(|| {
            let names: Vec<_> = available.iter().map(|isa| isa.name()).collect();
            Error::config(format!(
                "`{VARIABLE}` must name an instruction set of this machine ({}), got {wanted:?}; unset it to use the fastest",
                names.join(", ")
            ))
        })
    }

    /// The name that `RSGEN_ISA` takes: `avx512`, `avx2` or `scalar`.
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(_) => "avx2",
            Kind::Portable(_) => "scalar",
        }
    }

    /// Runs an operation with this instruction set.
    pub(crate) fn run<O: SimdOp>(self, operation: O) -> O::Output {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(token) => token.run(operation),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(token) => token.run(operation),
            Kind::Portable(token) => operation.eval(token),
        }
    }
}

impl fmt::Debug for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
