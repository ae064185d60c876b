{{/* Non-empty if sluice is in an Envoy's pod. */}}
{{- define "sluice.sidecar" -}}
{{- if hasPrefix "sidecar-" .Values.mode }}yes{{ end -}}
{{- end }}

{{/* Non-empty if the mode contains an Envoy. */}}
{{- define "sluice.envoy" -}}
{{- if or (include "sluice.sidecar" .) (eq .Values.mode "sharded") }}yes{{ end -}}
{{- end }}

{{/* Non-empty if the mode has rule files. */}}
{{- define "sluice.files" -}}
{{- if ne .Values.mode "envoy-ai-gateway" }}yes{{ end -}}
{{- end }}

{{/* Non-empty if replicas share counters in a store. */}}
{{- define "sluice.shared" -}}
{{- $shared := eq .Values.mode "store" }}
{{- range .Values.args }}{{ if regexMatch "^--store=.+" . }}{{ $shared = true }}{{ end }}{{ end }}
{{- if $shared }}yes{{ end -}}
{{- end }}

{{/* Non-empty if several replicas would each grant the limits: without a store, and without sharding. */}}
{{- define "sluice.separate" -}}
{{- $separate := not (or (include "sluice.shared" .) (include "sluice.envoy" .)) }}
{{- range .Values.args }}{{ if regexMatch "^--sharded(=(true|yes|1))?$" . }}{{ $separate = false }}{{ end }}{{ end }}
{{- if $separate }}yes{{ end -}}
{{- end }}

{{- define "sluice.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}

{{/* An object of kustomize in the release's namespace. Its file explains the settings. */}}
{{- define "sluice.object" -}}
{{- $object := .root.Files.Get (printf "files/%s.yaml" .file) | fromYaml -}}
{{- $_ := set $object.metadata "namespace" .root.Release.Namespace -}}
{{ toYaml $object }}
{{- end }}

{{/* The rules, by file name. */}}
{{- define "sluice.rules" -}}
{{- $file := ternary "files/sharded-rules.yaml" "files/rules.yaml" (eq .Values.mode "sharded") -}}
{{ .Values.rules | default (dict "rules.yaml" (.Files.Get $file)) | toYaml }}
{{- end }}

{{/* The configuration of the mode's Envoy. */}}
{{- define "sluice.envoyConfig" -}}
{{ .Values.envoyConfig | default (.Files.Get (printf "files/%s-envoy.yaml" .Values.mode)) }}
{{- end }}

{{/* The fields of a pod that come from values. */}}
{{- define "sluice.pod" -}}
{{- with .Values.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}
