/** GPT-2 on the JVM: text, and what every head attended to. Begin at {@link dev.loupe.Loupe}. */
module dev.loupe.engine {
  requires ai.djl.tokenizers;
  requires transitive com.google.gson;
  requires transitive dev.loupe.cuda;
  requires transitive dev.loupe.weights;
  requires java.desktop;
  requires java.net.http;
  requires jdk.management;
  requires org.apache.commons.compress;
  requires static jdk.incubator.vector; // plain loops are used without it
  requires static transitive org.jspecify;

  exports dev.loupe;
  exports dev.loupe.attention;
  exports dev.loupe.corpus;
  exports dev.loupe.export;
  exports dev.loupe.export.figure;
  exports dev.loupe.export.trace;
  exports dev.loupe.generate;
  exports dev.loupe.interpret;
  exports dev.loupe.interpret.trace;
  exports dev.loupe.model;
  exports dev.loupe.ops;
  exports dev.loupe.sampling;
  exports dev.loupe.text;

  uses dev.loupe.corpus.CorpusJobs.Provider;
}
