use super::*;

const SAXPY: &str = "
// a comment with .entry other(
.version 8.0
.target sm_80
.address_size 64
/* .shared .b8 hidden[4096]; */
.extern .shared .align 16 .b8 dynamic[];
.shared .align 8 .b8 first[12];
.shared .f32 pair[2][3], single;
.file 1 \"a.entry file(.cu\"
.visible .entry saxpy(
  .param .u64 .ptr .global .align 16 x,
  .param .u64 y,
  .param .u32 count, // how many
  .param .f32 a
)
.maxntid 128, 2
{
  .reg .b32 %r<4>;
  .shared .b32 own;
  st.shared.u32 [own], %r1;
  { .shared .align 16 .b8 deep[16]; }
  ret;
}
.entry block(.param .align 8 .b8 block[0x1C]) .reqntid 64 .maxnreg 32
{
  .shared .b64 mine[4];
  ret;
}
.func helper { .shared .b8 help[100]; ret; }
.entry none { ret; }
";

#[test]
fn parameters_lie_as_a_block_lays_them_out() {
    let found = |name| entry(SAXPY, name).unwrap().parameters.unwrap();
    let at = |list: &[Parameter]| -> Vec<_> { list.iter().map(|p| (p.offset, p.bytes)).collect() };
    assert_eq!(at(&found("saxpy")), [(0, 8), (8, 8), (16, 4), (20, 4)]);
    assert_eq!(at(&found("block")), [(0, 28)]);
    assert_eq!(at(&found("none")), []);
    let mixed = ".entry k(.param .u8 a, .param .u64 b, .param .v4 .f32 c, .param .u16 d[3]){}";
    let list = entry(mixed, "k").unwrap().parameters.unwrap();
    assert_eq!(at(&list), [(0, 1), (8, 8), (16, 16), (32, 6)]);
    let odd = entry(".entry k(.param .texref t) {}", "k").unwrap();
    assert_eq!(odd.parameters, None);
}

#[test]
fn shared_memory_is_the_modules_the_functions_and_the_kernels_own() {
    // first 12, pair 24, single 4: 40; the rest of the module: helper's 100.
    let bytes = |name| entry(SAXPY, name).unwrap().shared_bytes;
    assert_eq!(bytes("none"), 140);
    // own 4 at 40, deep 16 at 48, then help.
    assert_eq!(bytes("saxpy"), 164);
    // mine 32 at 40, then help.
    assert_eq!(bytes("block"), 172);
    let twice = ".entry a(){ .shared .b8 x[40000]; }\n.entry b(){ .shared .b8 y[30000]; }";
    assert_eq!(entry(twice, "a").unwrap().shared_bytes, 40_000);
    assert_eq!(entry(twice, "b").unwrap().shared_bytes, 30_000);
    let huge = ".shared .b64 x[4294967295][4294967295];.shared .b8 y[49153];.entry a(){}";
    assert_eq!(entry(huge, "a").unwrap().shared_bytes, 49_153);
}

#[test]
fn blocks_are_as_the_text_demands() {
    let saxpy = entry(SAXPY, "saxpy").unwrap();
    assert_eq!((saxpy.required, saxpy.most), (None, Some(256)));
    let block = entry(SAXPY, "block").unwrap();
    assert_eq!((block.required, block.most), (Some([64, 1, 1]), None));
}

#[test]
fn an_unknown_kernel_gives_the_names_of_those_that_there_are() {
    assert_eq!(
        entry(SAXPY, "helper").unwrap_err(),
        ["saxpy", "block", "none"]
    );
    assert!(entry("", "k").unwrap_err().is_empty());
}

#[test]
fn text_that_is_no_ptx_is_read_to_its_end() {
    for text in [
        ".entry",
        ".entry k(",
        ".entry k(.param",
        ".shared",
        ".shared .align",
        "\"open",
        "/* open",
        ".entry k(.param .align 0 .b8 x[1])",
        ".shared .align 18446744073709551615 .b8 x[9];",
        "}}}{",
        ".entry é(.param .b8 ü[1]) {\u{1f600}",
        ".reqntid",
        ".entry k .reqntid 4294967296,,",
    ] {
        let _ = entry(text, "k");
    }
}

#[test]
fn cubins_are_told_by_their_first_bytes_and_their_kernels_by_section_names() {
    let cubin = b"\x7fELF\0\0.text.saxpy\0.nv.info.saxpy\0";
    assert!(is_cubin(cubin) && !is_cubin(SAXPY.as_bytes()));
    assert!(cubin_has(cubin, "saxpy") && !cubin_has(cubin, "sax"));
}
