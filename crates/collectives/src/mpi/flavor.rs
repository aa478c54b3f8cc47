//! What differs between the binary interfaces of MPI: the names of the libraries, and their constants.
#![deny(unsafe_code)]

/// A binary interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    OpenMpi,
    Mpich,
    /// The one of MPI-5, `libmpi_abi`.
    Standard,
}

impl Flavor {
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "openmpi",
            Self::Mpich => "mpich",
            Self::Standard => "mpi-abi",
        }
    }

    /// The interface of a loaded library. Open MPI is known by its objects. MPICH 5 has the calls of MPI-5 in both of
    /// its libraries, so that only the name tells which handles they take.
    pub fn detect(library: &str, has_open_mpi_objects: bool) -> Self {
        let file = library.rsplit('/').next().unwrap_or(library);
        match has_open_mpi_objects {
            true => Self::OpenMpi,
            false if file.starts_with("libmpi_abi.") => Self::Standard,
            false => Self::Mpich,
        }
    }
}

/// The constants of an interface whose handles are `H`.
#[derive(Debug, Clone, Copy)]
pub struct Constants<H> {
    pub world: H,
    pub float: H,
    pub byte: H,
    pub sum: H,
    pub errors_return: H,
    /// `MPI_REQUEST_NULL`: a request before its first use.
    pub no_request: H,
    /// Ignored by a gather in place.
    pub no_datatype: H,
    /// The address that stands for `MPI_IN_PLACE`.
    pub in_place: isize,
    /// `MPI_THREAD_FUNNELED`: one thread alone calls MPI.
    pub funneled: i32,
}

/// Of MPICH 3.1 to 5, Intel MPI and the others of the MPICH ABI initiative.
pub const MPICH: Constants<i32> = Constants {
    world: 0x4400_0000,
    float: 0x4c00_040a,
    byte: 0x4c00_010d,
    sum: 0x5800_0003,
    errors_return: 0x5400_0001,
    no_request: 0x2c00_0000,
    no_datatype: 0x0c00_0000,
    in_place: -1,
    funneled: 1,
};

/// Of MPI-5, chapter 20.
pub const STANDARD: Constants<usize> = Constants {
    world: 0x101,
    float: 0x210,
    byte: 0x247,
    sum: 0x21,
    errors_return: 0x143,
    no_request: 0x180,
    no_datatype: 0x200,
    in_place: 1,
    funneled: 1024,
};

/// Open MPI's objects by name, in the order world, float, byte, sum, errors_return, no_request, no_datatype.
pub const OPEN_MPI_OBJECTS: [&str; 7] = [
    "ompi_mpi_comm_world",
    "ompi_mpi_float",
    "ompi_mpi_byte",
    "ompi_mpi_op_sum",
    "ompi_mpi_errors_return",
    "ompi_request_null",
    "ompi_mpi_datatype_null",
];
pub const OPEN_MPI_IN_PLACE: isize = 1;
pub const OPEN_MPI_FUNNELED: i32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_known_by_objects_and_then_by_name() {
        let of = Flavor::detect;
        assert_eq!(of("libmpi.so.40", true), Flavor::OpenMpi);
        assert_eq!(of("/opt/x/libmpi_abi.so.1", true), Flavor::OpenMpi);
        assert_eq!(of("/opt/x/libmpi_abi.so.1.0.3", false), Flavor::Standard);
        assert_eq!(of("/opt/libmpi_abi.so/libmpi.so.12", false), Flavor::Mpich);
        assert_eq!(of("libmpich.so.12", false), Flavor::Mpich);
    }
}
