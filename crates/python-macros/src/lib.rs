//! The attribute `#[guarded]` of the Python extension.
#![forbid(unsafe_code)]

use proc_macro::TokenStream;
use quote::quote;
use syn::{Block, ImplItem, Item, ReturnType, Signature, Type, parse_macro_input, parse_quote};

/// What Python's collector calls: nothing may be raised there, and no Python code may run.
const UNGUARDED: [&str; 2] = ["__traverse__", "__clear__"];

/// Guards a function that Python calls, or all methods of an `impl` block: `errors::guarded` runs the body. One that returns a
/// plain value returns it in a `PyResult`.
#[proc_macro_attribute]
pub fn guarded(_arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut item = parse_macro_input!(item as Item);
    match &mut item {
        Item::Fn(function) => guard(&mut function.sig, &mut function.block),
        Item::Impl(methods) => {
            for method in &mut methods.items {
                if let ImplItem::Fn(method) = method
                    && !UNGUARDED.iter().any(|name| method.sig.ident == name)
                {
                    guard(&mut method.sig, &mut method.block);
                }
            }
        }
        _ => return quote!(compile_error!("`#[guarded]` is for functions and `impl` blocks");).into(),
    }
    quote!(#item).into()
}

fn guard(signature: &mut Signature, block: &mut Block) {
    let returned: Type = match &signature.output {
        ReturnType::Default => parse_quote!(()),
        ReturnType::Type(_, returned) => (**returned).clone(),
    };
    let is_result = matches!(&returned, Type::Path(path)
        if path.path.segments.last().is_some_and(|last| last.ident == "PyResult"));
    *block = if is_result {
        parse_quote!({ crate::errors::guarded(|| -> #returned #block) })
    } else {
        signature.output = parse_quote!(-> ::pyo3::PyResult<#returned>);
        parse_quote!({ crate::errors::guarded(|| Ok(#block)) })
    };
}
