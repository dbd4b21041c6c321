//! Selects the instruction set of the kernels, and runs code compiled for it.

use std::fmt;

use serde::Serialize;

#[cfg(target_arch = "aarch64")]
use super::aarch64::neon::Neon;
use super::portable::Portable;
use super::simd::SimdOp;
#[cfg(target_arch = "x86_64")]
use super::x86_64::{avx2::Avx2, avx512::Avx512};
use rsgen_core::{Choice, Error, Result};

/// The environment variable that forces an instruction set.
const VARIABLE: &str = "RSGEN_ISA";

/// An instruction set that is present on this machine.
///
/// All give the same bits and differ only in speed. (In `bfloat16` arithmetic what is below 2^-126 may be 0.)
#[derive(Clone, Copy)]
pub struct Isa(Kind);

#[derive(Clone, Copy)]
enum Kind {
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16(Avx512<true>),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512<false>),
    #[cfg(target_arch = "x86_64")]
    AvxVnni(Avx2<true>),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2<false>),
    #[cfg(target_arch = "aarch64")]
    NeonBf16(Neon<true, true>),
    #[cfg(target_arch = "aarch64")]
    NeonDotprod(Neon<true>),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
    Portable(Portable),
}

/// Why an instruction set is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum IsaReason {
    /// The caller named it.
    Argument,
    /// An environment variable names it.
    Environment {
        /// Its name.
        variable: &'static str,
    },
    /// It is the fastest that this machine has.
    Fastest,
}

impl fmt::Display for IsaReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument => f.write_str("given by the caller"),
            Self::Environment { variable } => write!(f, "named by {variable}"),
            Self::Fastest => f.write_str("the fastest of this machine"),
        }
    }
}

impl Isa {
    /// The instruction sets of this machine, the fastest first. The portable one is always there.
    pub fn available() -> Vec<Self> {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            found.extend(Avx512::<true>::new().map(|token| Self(Kind::Avx512Bf16(token))));
            found.extend(Avx512::<false>::new().map(|token| Self(Kind::Avx512(token))));
            found.extend(Avx2::<true>::new().map(|token| Self(Kind::AvxVnni(token))));
            found.extend(Avx2::<false>::new().map(|token| Self(Kind::Avx2(token))));
        }
        #[cfg(target_arch = "aarch64")]
        {
            found.extend(Neon::<true, true>::new().map(|token| Self(Kind::NeonBf16(token))));
            found.extend(Neon::<true>::new().map(|token| Self(Kind::NeonDotprod(token))));
            found.extend(<Neon>::new().map(|token| Self(Kind::Neon(token))));
        }
        found.push(Self(Kind::Portable(Portable)));
        found
    }

    /// The fastest instruction set of this machine.
    pub fn fastest() -> Self {
        Self::available()[0]
    }

    /// The instruction set to compute with: `wanted`, or the one that the environment variable `RSGEN_ISA`
    /// names (see [`Isa::name`]), or the fastest one.
    ///
    /// # Errors
    /// When the variable names an instruction set that is unknown, or that this machine does not have.
    pub fn choose(wanted: Option<Self>) -> Result<Choice<Self, IsaReason>> {
        match wanted {
            Some(wanted) => Ok(Choice::new(wanted, IsaReason::Argument)),
            None => Self::named_or_fastest(&std::env::var(VARIABLE).unwrap_or_default()),
        }
    }

    /// [`Isa::choose`] without a preference.
    ///
    /// # Errors
    /// As for [`Isa::choose`].
    pub fn select() -> Result<Self> {
        Self::choose(None).map(|choice| choice.value)
    }

    /// `name` is the value of the variable, empty when it is not set.
    fn named_or_fastest(name: &str) -> Result<Choice<Self, IsaReason>> {
        let available = Self::available();
        if name.is_empty() {
            return Ok(Choice::new(available[0], IsaReason::Fastest));
        }
        let named = available.iter().find(|isa| isa.name() == name).copied().ok_or_else(|| {
            let names: Vec<_> = available.iter().map(|isa| isa.name()).collect();
            Error::config(format!(
                "must name an instruction set of this machine ({}), got {name:?}; unset it to use the \
                 fastest",
                names.join(", ")
            ))
            .about(VARIABLE)
        })?;
        Ok(Choice::new(named, IsaReason::Environment { variable: VARIABLE }))
    }

    /// The name that `RSGEN_ISA` takes: `avx512_bf16`, `avx512`, `avx_vnni` or `avx2`; on ARM `neon_bf16`,
    /// `neon_dotprod` or `neon`; everywhere `scalar`.
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512Bf16(_) => "avx512_bf16",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            Kind::AvxVnni(_) => "avx_vnni",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(_) => "avx2",
            #[cfg(target_arch = "aarch64")]
            Kind::NeonBf16(_) => "neon_bf16",
            #[cfg(target_arch = "aarch64")]
            Kind::NeonDotprod(_) => "neon_dotprod",
            #[cfg(target_arch = "aarch64")]
            Kind::Neon(_) => "neon",
            Kind::Portable(_) => "scalar",
        }
    }

    /// Whether there is an instruction for products of two pairs of `bf16`, which are emulated elsewhere.
    pub fn has_bf16_products(self) -> bool {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512Bf16(_) => true,
            #[cfg(target_arch = "aarch64")]
            Kind::NeonBf16(_) => true,
            _ => false,
        }
    }

    /// Runs an operation with this instruction set.
    pub(crate) fn run<O: SimdOp>(self, operation: O) -> O::Output {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512Bf16(token) => token.plain().run(operation),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(token) => token.run(operation),
            #[cfg(target_arch = "x86_64")]
            Kind::AvxVnni(token) => token.plain().run(operation),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(token) => token.run(operation),
            #[cfg(target_arch = "aarch64")]
            Kind::NeonBf16(token) => token.plain().run(operation),
            #[cfg(target_arch = "aarch64")]
            Kind::NeonDotprod(token) => token.plain().run(operation),
            #[cfg(target_arch = "aarch64")]
            Kind::Neon(token) => token.run(operation),
            Kind::Portable(token) => operation.eval(token),
        }
    }

    /// [`Isa::run`] for operations on pairs of `bf16`; others need no variant for these instructions. Without an
    /// instruction for them ([`Isa::has_bf16_products`]) the portable code runs, for tests alone: matrices are packed
    /// for other products then.
    pub(crate) fn run_bf16<O: SimdOp>(self, operation: O) -> O::Output {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512Bf16(token) => token.run(operation),
            #[cfg(target_arch = "aarch64")]
            Kind::NeonBf16(token) => token.run(operation),
            _ => operation.eval(Portable),
        }
    }

    /// [`Isa::run`] for operations on 8-bit integers; others need no variant for these instructions.
    pub(crate) fn run_integers<O: SimdOp>(self, operation: O) -> O::Output {
        #[cfg(target_arch = "x86_64")]
        match self.0 {
            Kind::Avx512Bf16(_) | Kind::Avx512(_) => {
                if let Some(token) = Avx512::<false, true>::new() {
                    return token.run(operation);
                }
            }
            Kind::AvxVnni(token) => return token.run(operation),
            Kind::Avx2(_) | Kind::Portable(_) => {}
        }
        #[cfg(target_arch = "aarch64")]
        match self.0 {
            Kind::NeonBf16(token) => return token.run(operation),
            Kind::NeonDotprod(token) => return token.run(operation),
            Kind::Neon(_) | Kind::Portable(_) => {}
        }
        self.run(operation)
    }
}

/// The fastest.
impl Default for Isa {
    fn default() -> Self {
        Self::fastest()
    }
}

impl fmt::Debug for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rsgen_core::ErrorKind;

    #[test]
    fn a_caller_goes_before_the_variable_and_the_variable_before_the_fastest() {
        let portable = Isa(Kind::Portable(Portable));
        let chosen = Isa::choose(Some(portable)).unwrap();
        assert_eq!((chosen.value.name(), chosen.reason), ("scalar", IsaReason::Argument));
        let chosen = Isa::named_or_fastest("scalar").unwrap();
        assert_eq!(
            (chosen.value.name(), chosen.reason.to_string()),
            ("scalar", "named by RSGEN_ISA".to_owned())
        );
        let chosen = Isa::named_or_fastest("").unwrap();
        assert_eq!((chosen.value.name(), chosen.reason), (Isa::available()[0].name(), IsaReason::Fastest));
    }

    #[test]
    fn an_instruction_set_that_is_not_there_is_refused_with_those_that_are() {
        for name in ["sse9", "AVX2", " "] {
            let error = Isa::named_or_fastest(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(
                error.to_string().contains("`RSGEN_ISA`") && error.to_string().contains("scalar)"),
                "{error}"
            );
        }
    }
}
