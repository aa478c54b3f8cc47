//! Build script: the Node-API link setup, and the compute shaders.
//!
//! Every `shaders/**/*.comp` is compiled to SPIR-V 1.6 for Vulkan 1.3. The shader's name is its file stem, unless the
//! file has header lines of one of two kinds:
//! - `//! variant <name> DEF1=v1 DEF2 …` compiles the file under that name with those definitions;
//! - `//! axis <label> DEF1=v1 … | <label> …` multiplies: the file is compiled once for each combination of one choice
//!   from every axis, under the chosen labels joined by `_` (the label `-` adds nothing to the name).
//!
//! Includes come from `shaders/include/`. The result is `$OUT_DIR/shaders.spv` (all modules, end to end) and
//! `$OUT_DIR/shaders.rs` (`SHADERS`, sorted by name), which `src/shaders.rs` includes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, process, thread};

use glslang::include::{IncludeHandler, IncludeResult, IncludeType};
use glslang::{
    Compiler, CompilerOptions, ShaderInput, ShaderMessage, ShaderSource, ShaderStage,
    SourceLanguage, SpirvVersion, Target, VulkanVersion,
};

fn main() {
    napi_build::setup();
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=shaders");

    let root =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let modules = collect(&root)
        .and_then(|jobs| compile_all(&root, &jobs))
        .unwrap_or_else(|errors| {
            for line in errors
                .iter()
                .flat_map(|e| e.lines())
                .filter(|l| !l.trim().is_empty())
            {
                println!("cargo::error={line}");
            }
            process::exit(1);
        });
    write_table(&out, &modules);
}

/// One module to compile: a source file under one set of definitions.
struct Job {
    name: String,
    path: PathBuf,
    source: String,
    defines: Vec<(String, String)>,
}

/// Finds the sources below `shaders/` and expands their variants; refuses bad and duplicate names.
fn collect(root: &Path) -> Result<Vec<Job>, Vec<String>> {
    let mut files = Vec::new();
    walk(&root.join("shaders"), &mut files);
    files.sort();
    let mut errors = Vec::new();
    let mut jobs = BTreeMap::<String, Job>::new();
    for path in files {
        let shown = path.strip_prefix(root).unwrap_or(&path).to_path_buf();
        let source = match fs::read_to_string(&path) {
            Ok(source) => source,
            Err(error) => {
                errors.push(format!("{}: {error}", shown.display()));
                continue;
            }
        };
        let (mut variants, product) = match header(&source) {
            Ok(found) => found,
            Err((line, error)) => {
                errors.push(format!("{}:{line}: {error}", shown.display()));
                continue;
            }
        };
        variants.extend(product);
        if variants.is_empty() {
            let stem = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            variants.push((stem, Vec::new(), 1));
        }
        for (name, defines, line) in variants {
            if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                errors.push(format!(
                    "{}:{line}: \"{name}\" is not a shader name ([A-Za-z0-9_]+)",
                    shown.display()
                ));
            } else if let Some(other) = jobs.get(&name) {
                let other = other.path.display();
                errors.push(format!(
                    "{}:{line}: the name {name} is taken by {other}",
                    shown.display()
                ));
            } else {
                let job = Job {
                    name: name.clone(),
                    path: shown.clone(),
                    source: source.clone(),
                    defines,
                };
                jobs.insert(name, job);
            }
        }
    }
    if errors.is_empty() {
        Ok(jobs.into_values().collect())
    } else {
        Err(errors)
    }
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            walk(&path, files);
        } else if path.extension().is_some_and(|e| e == "comp") {
            files.push(path);
        }
    }
}

/// A name, its definitions, and the line that asks for it.
type Variant = (String, Vec<(String, String)>, usize);

/// The `variant` lines of a source, and the product of its `axis` lines.
fn header(source: &str) -> Result<(Vec<Variant>, Vec<Variant>), (usize, String)> {
    let mut variants = Vec::new();
    let mut product = Vec::<Variant>::new();
    for (index, line) in source.lines().enumerate() {
        let at = index + 1;
        if let Some(rest) = line.strip_prefix("//! variant ") {
            let mut words = rest.split_whitespace();
            let name = words
                .next()
                .ok_or((at, "a variant needs a name".to_string()))?;
            variants.push((name.to_string(), words.map(define).collect(), at));
        } else if let Some(rest) = line.strip_prefix("//! axis ") {
            let before = if product.is_empty() {
                vec![(String::new(), Vec::new(), at)]
            } else {
                product
            };
            product = Vec::new();
            for (name, defines, first) in &before {
                for choice in rest.split('|') {
                    let mut words = choice.split_whitespace();
                    let label = words
                        .next()
                        .ok_or((at, "every choice of an axis needs a label".to_string()))?;
                    let name = match (name.as_str(), label) {
                        (name, "-") => name.to_string(),
                        ("", label) => label.to_string(),
                        (name, label) => format!("{name}_{label}"),
                    };
                    product.push((
                        name,
                        defines.iter().cloned().chain(words.map(define)).collect(),
                        *first,
                    ));
                }
            }
        }
    }
    Ok((variants, product))
}

/// `NAME=value`, or `NAME` for `NAME=1`.
fn define(word: &str) -> (String, String) {
    let (name, value) = word.split_once('=').unwrap_or((word, "1"));
    (name.to_string(), value.to_string())
}

/// Compiles on every core; the result is in the order of `jobs`.
fn compile_all(root: &Path, jobs: &[Job]) -> Result<Vec<(String, Vec<u32>)>, Vec<String>> {
    let compiler =
        Compiler::acquire().ok_or_else(|| vec!["glslang did not initialize".to_string()])?;
    let include = root.join("shaders/include");
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(jobs.len()));
    let threads = thread::available_parallelism()
        .map_or(1, |n| n.get())
        .min(jobs.len().max(1));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((index, job)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    jobs.get(index).map(|job| (index, job))
                } {
                    let result = compile(compiler, &include, job);
                    results
                        .lock()
                        .expect("no thread panics with the lock")
                        .push((index, result));
                }
            });
        }
    });
    let mut results = results
        .into_inner()
        .expect("no thread panics with the lock");
    results.sort_by_key(|(index, _)| *index);
    let mut modules = Vec::with_capacity(jobs.len());
    let mut errors = Vec::new();
    for (index, result) in results {
        match result {
            Ok(words) => modules.push((jobs[index].name.clone(), words)),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() {
        Ok(modules)
    } else {
        Err(errors)
    }
}

fn compile(compiler: &Compiler, include: &Path, job: &Job) -> Result<Vec<u32>, String> {
    let source = ShaderSource::from(job.source.as_str());
    let options = CompilerOptions {
        source_language: SourceLanguage::GLSL,
        target: Target::Vulkan {
            version: VulkanVersion::Vulkan1_3,
            spirv_version: SpirvVersion::SPIRV1_6,
        },
        version_profile: None,
        messages: ShaderMessage::DEFAULT | ShaderMessage::SPV_RULES | ShaderMessage::VULKAN_RULES,
    };
    let defines: Vec<_> = job
        .defines
        .iter()
        .map(|(name, value)| (name.as_str(), Some(value.as_str())))
        .collect();
    let mut includes = Includes { folder: include };
    let input = ShaderInput::new(
        &source,
        ShaderStage::Compute,
        &options,
        Some(&defines),
        Some(&mut includes),
    )
    .map_err(|error| located(job, &error.to_string()))?;
    let shader = compiler
        .create_shader(input)
        .map_err(|error| located(job, &error.to_string()))?;
    shader
        .compile()
        .map_err(|error| located(job, &error.to_string()))
}

/// glslang's log with the file in place of its string number: `ERROR: 0:12:` becomes `shaders/x.comp:12:`.
fn located(job: &Job, log: &str) -> String {
    let path = job.path.display();
    let mut text = format!("shader {} ({path}) did not compile", job.name);
    for line in log.lines() {
        let line = line.trim();
        // What frames the messages in the log.
        let frame = ["Log:", "compilation terminated", "No code generated."]
            .iter()
            .any(|end| line.ends_with(end));
        if line.is_empty() || frame {
            continue;
        }
        text.push('\n');
        match line
            .split_once("ERROR: ")
            .map_or(line, |(_, rest)| rest)
            .split_once(':')
        {
            Some(("0", at)) => write!(text, "{path}:{at}").expect("writing to a String"),
            Some((file, at)) if file.ends_with(".glsl") => {
                write!(text, "shaders/include/{file}:{at}").expect("writing to a String");
            }
            _ => text.push_str(line),
        }
    }
    text
}

/// Resolves `#include "x.glsl"` in `shaders/include/`.
struct Includes<'a> {
    folder: &'a Path,
}

impl IncludeHandler for Includes<'_> {
    fn include(
        &mut self,
        _: IncludeType,
        name: &str,
        _: &str,
        depth: usize,
    ) -> Option<IncludeResult> {
        // The depth is a guard against a header that includes itself.
        if depth > 32 {
            return None;
        }
        let data = fs::read_to_string(self.folder.join(name)).ok()?;
        Some(IncludeResult {
            name: name.to_string(),
            data,
        })
    }
}

fn write_table(out: &Path, modules: &[(String, Vec<u32>)]) {
    let bytes: Vec<u8> = modules
        .iter()
        .flat_map(|(_, words)| words.iter().flat_map(|w| w.to_ne_bytes()))
        .collect();
    let mut table = format!(
        "#[repr(C, align(4))]\nstruct Words([u8; {0}]);\n\
         static WORDS: Words = Words(*include_bytes!(concat!(env!(\"OUT_DIR\"), \"/shaders.spv\")));\n\
         const fn words(offset: usize, length: usize) -> &'static [u32] {{\n\
         \x20   assert!(4 * (offset + length) <= {0});\n\
         \x20   // SAFETY: WORDS is aligned for u32, the range was checked, and every bit pattern is a u32.\n\
         \x20   unsafe {{ core::slice::from_raw_parts(WORDS.0.as_ptr().cast::<u32>().add(offset), length) }}\n\
         }}\n\
         /// Every compiled shader, sorted by name.\n\
         pub static SHADERS: &[Shader] = &[\n",
        bytes.len()
    );
    let mut offset = 0;
    for (name, words) in modules {
        writeln!(
            table,
            "    Shader {{ name: \"{name}\", spirv: words({offset}, {}) }},",
            words.len()
        )
        .expect("writing to a String");
        offset += words.len();
    }
    table.push_str("];\n");
    fs::write(out.join("shaders.spv"), bytes).expect("OUT_DIR is writable");
    fs::write(out.join("shaders.rs"), table).expect("OUT_DIR is writable");
}
