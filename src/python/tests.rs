//! A panic in each function that Python can call, in an interpreter that is embedded here.
//!
//! These tests need a shared libpython, so they run by themselves: `make test-border`. That every exported function goes
//! the guarded way is also read off the sources, by `tests/suite/python_border.rs`.

use std::cell::Cell;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict};

use super::_rsgen;

thread_local! {
    static ARMED: Cell<bool> = const { Cell::new(false) };
}

/// Called at the beginning of each guarded function.
pub(super) fn panic_if_asked() {
    assert!(!ARMED.take(), "a panic of the test");
}

/// Calls everything, each with a panic armed. `gen` is on one thread, so what is armed is met.
const PROGRAM: &std::ffi::CStr = cr#"
import asyncio, types

def values(gen):
    output = gen.generate([5, 6], max_new_tokens=2)
    stream = gen.stream([5, 6], max_new_tokens=50)
    return {
        "Generator": gen,
        "GenerationConfig": rsgen.GenerationConfig(top_k=5),
        "GenerationOutput": output,
        "Usage": output.usage,
        "Timings": output.timings,
        "CacheStats": gen.stats(),
        "StreamedToken": next(stream),
        "TokenStream": stream,
        "Tokenizer": gen.tokenizer,
    }

arguments = {
    "GenerationConfig.from_dict": ({},),
    "GenerationConfig.from_pretrained": ("nowhere",),
    "GenerationConfig.save_pretrained": ("nowhere",),
    "GenerationConfig.__getattr__": ("banana",),
    "GenerationConfig.__setattr__": ("banana", 1),
    "Generator.from_pretrained": ("nowhere",),
    "Generator.__deepcopy__": ({},),
    "Tokenizer.encode": ("text",),
    "Tokenizer.decode": ([5],),
    "Tokenizer.__deepcopy__": ({},),
    "TokenStream.send": (None,),
    "TokenStream.throw": (KeyError,),
    "StreamedToken._restore": ((1, "a", 0, 0.0, 0.0, None),),
    "Usage._restore": ((1, 2),),
    "Timings._restore": ((1.0, 2.0),),
    "CacheStats._restore": ([1] * 7,),
    "GenerationOutput._restore": (({}, None, None),),
}
for name in ("generate", "greedy_search", "sample", "stream", "astream", "forward", "score"):
    arguments["Generator." + name] = ([5, 6],)

# Read by PyO3 itself, and what every object has.
of_pyo3 = {"__doc__", "__module__", "__hash__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__delattr__"}

called, failed = [], []

def expect(name, call):
    called.append(name)
    arm()
    try:
        call()
    except rsgen.InternalError as error:
        text = str(error)
        if "a panic of the test" not in text or "src/python/tests.rs" not in text or "report it" not in text:
            failed.append((name, text))
    except BaseException as error:
        failed.append((name, repr(error)))
    else:
        failed.append((name, "nothing was raised"))
    if disarm():
        failed.append((name, "it is not guarded"))

def call_all(values):
    for class_name, value in values.items():
        cls = type(value)
        plain = {"Usage", "Timings", "CacheStats", "StreamedToken"}
        for name, attribute in vars(cls).items():
            full = class_name + "." + name
            if name in of_pyo3:
                continue
            if isinstance(attribute, types.GetSetDescriptorType) or isinstance(attribute, property):
                if class_name not in plain:
                    expect(full, lambda: getattr(value, name))
            elif name == "__new__":
                if class_name == "Generator":
                    expect(full, lambda: cls("nowhere"))
                elif class_name == "GenerationConfig":
                    expect(full, lambda: cls())
            else:
                expect(full, lambda: getattr(value, name)(*arguments.get(full, ())))

call_all(values(gen))
expect("cli", lambda: rsgen.cli(["--version"]))

async def on_a_loop():
    stream = gen.astream([5, 6], max_new_tokens=5)
    for name in ("__anext__", "aclose", "__aenter__", "__aexit__"):
        expect("TokenStream." + name, getattr(stream, name))
    return [token.id async for token in stream]

expected = gen.generate([5, 6], max_new_tokens=5).token_ids[0].tolist()
assert asyncio.run(on_a_loop()) == expected, "after all these panics it answers as before"
assert gen.stats().blocks_used == gen.stats().blocks_reserved == 0
"#;

#[test]
fn a_panic_in_any_exported_function_is_an_internal_error_and_the_generator_goes_on() {
    Python::initialize();
    Python::attach(|py| {
        let module = pyo3::wrap_pymodule!(_rsgen)(py);
        let closure = |function: fn() -> bool| {
            PyCFunction::new_closure(py, None, None, move |_, _| -> PyResult<bool> { Ok(function()) })
                .unwrap()
        };
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/python/rsgen/models/story-3m");
        let options = PyDict::new(py);
        options.set_item("num_threads", 1).unwrap();
        let generator = module.getattr(py, "Generator").unwrap();
        let generator = generator.call(py, (model,), Some(&options)).unwrap();
        let globals = PyDict::new(py);
        globals.set_item("rsgen", &module).unwrap();
        globals.set_item("gen", generator).unwrap();
        globals.set_item("arm", closure(|| ARMED.replace(true))).unwrap();
        globals.set_item("disarm", closure(|| ARMED.take())).unwrap();
        py.run(PROGRAM, Some(&globals), None).unwrap_or_else(|error| {
            error.print(py);
            panic!("the program of the test failed");
        });
        let list = |name: &str| globals.get_item(name).unwrap().unwrap().str().unwrap().to_string();
        assert_eq!(list("failed"), "[]", "of {}", list("called"));
        let called = globals.get_item("called").unwrap().unwrap().len().unwrap();
        assert!(called > 80, "only {called} functions were called");
    });
}

#[test]
fn a_panic_on_a_thread_of_a_loop_is_an_internal_error_too() {
    Python::initialize();
    Python::attach(|py| {
        let error = super::errors::caught(|| panic!("index {} out of range", 7)).unwrap_err();
        let error = super::errors::to_python(py, error);
        assert!(error.is_instance_of::<PyRuntimeError>(py));
        assert!(error.to_string().contains("index 7 out of range"), "{error}");
    });
}
