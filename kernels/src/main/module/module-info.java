/** The CUDA kernels, and the Java that loads, tests and launches them. */
@SuppressWarnings("module") // dev.loupe.engine is built later
module dev.loupe.cuda {
  requires jcublas;
  requires jcuda;
  requires org.tukaani.xz;
  requires static transitive org.jspecify;

  exports dev.loupe.cuda;
  exports dev.loupe.cuda.driver;
  exports dev.loupe.cuda.kernels to
      dev.loupe.engine;
  exports dev.loupe.cuda.selftest to
      dev.loupe.engine;
}
