/** The CUDA kernels, and the Java that loads, tests and launches them. */
module dev.loupe.kernels {
  requires jcublas;
  requires jcuda;
  requires org.tukaani.xz;
  requires static transitive org.jspecify;

  exports dev.loupe.kernels;
}
